/**
 * A set of named files that an image is imported from: the members of a plain tar archive, or a folder. The layout
 * and docker-archive importers read through this alone. Members are byte ranges: nothing is unpacked.
 */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { cleanComponents } from '../merge/resolve-path.js';
import { ImageError } from '../store.js';
import type { TarEntry } from '../tar/tar-entry.js';

const CHUNK = 1 << 20;

/** One readable file. */
export interface Member {
  size: number;
  /** Chunks are valid until the next one is asked for. */
  read(): AsyncGenerator<Buffer>;
}

/** Files by their path in the archive or folder. */
export interface MemberFiles {
  find(path: string): Promise<Member | undefined>;
}

/** All of a small member. Throws `too-large`. */
export async function readSmallMember(member: Member, maxBytes: number, what: string): Promise<Buffer> {
  if (member.size > maxBytes) {
    throw new ImageError('too-large', `${what} has ${member.size} bytes, more than the limit of ${maxBytes}`);
  }
  const chunks: Buffer[] = [];
  for await (const chunk of member.read()) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

/** Members of a tar archive, collected entry by entry while it is read. */
export class TarMembers implements MemberFiles {
  private readonly members = new Map<string, { offset: number; size: number } | { linkTo: string }>();

  /** `maxMembers` bounds memory: an image archive has a few hundred; what has more is a root file system. */
  constructor(
    private readonly file: FileHandle,
    private readonly maxMembers: number,
  ) {}

  /** Notes an entry. */
  add(entry: TarEntry): void {
    const parts = cleanComponents(entry.name);
    if (parts.length === 0 || parts.length > 4 || this.members.size >= this.maxMembers) return;
    const path = parts.join('/');
    if (entry.type === 'file' && !entry.sparse) {
      this.members.set(path, { offset: entry.dataOffset, size: entry.size });
    } else if (entry.type === 'symlink') {
      // Old `docker save` links equal layers to each other.
      this.members.set(path, { linkTo: [...parts.slice(0, -1), entry.linkName].join('/') });
    } else if (entry.type === 'hardlink') {
      this.members.set(path, { linkTo: entry.linkName });
    }
  }

  async find(path: string): Promise<Member | undefined> {
    let found = this.members.get(cleanComponents(path).join('/'));
    for (let links = 0; found && 'linkTo' in found; links++) {
      if (links > 8) return undefined;
      found = this.members.get(cleanComponents(found.linkTo).join('/'));
    }
    if (!found || 'linkTo' in found) return undefined;
    const { offset, size } = found;
    return { size, read: () => readRange(this.file, offset, size) };
  }
}

/** Files of a folder on this host. Links in it are not followed. */
export class FolderMembers implements MemberFiles {
  constructor(private readonly folder: string) {}

  async find(path: string): Promise<Member | undefined> {
    const full = join(this.folder, ...cleanComponents(path));
    const file = await openPlain(full);
    if (!file) return undefined;
    const { size } = await file.stat();
    await file.close();
    return {
      size,
      read: async function* () {
        const again = await openPlain(full);
        if (!again) return;
        try {
          yield* readRange(again, 0, size);
        } finally {
          await again.close();
        }
      },
    };
  }
}

async function openPlain(path: string): Promise<FileHandle | undefined> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if ((await file.stat()).isFile()) return file;
    await file.close();
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return undefined;
    throw error;
  }
}

async function* readRange(file: FileHandle, offset: number, size: number): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafe(Math.min(CHUNK, Math.max(1, size)));
  for (let done = 0; done < size; ) {
    const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, size - done), offset + done);
    if (bytesRead === 0) return;
    done += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}
