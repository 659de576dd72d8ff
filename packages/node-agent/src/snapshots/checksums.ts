/**
 * Checksums of the files of snapshots that are to be kept: made once, when a checkpoint of one becomes durable, and
 * compared before anything is restored from it. Used by `checkpoints/checkpoint-store.ts` and by starts from checkpoints.
 *
 * A file that was read whole by us, and has not been written to since as its inode says, is not read again for an hour: a
 * rollback would else take longer than the restore itself. What a disk loses in that time is found by the next look.
 */
import { execFile } from 'node:child_process';
import { webcrypto } from 'node:crypto';
import { type FileHandle, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { syncToDisk } from '@sandlot/vmm';

/** Name of the file of them in a snapshot's folder. */
export const checksumsFile = 'checksums.json';
/** Bytes hashed at once, off our thread; blocks of zeroes count for nothing, so holes need not be read. */
const blockBytes = 1024 * 1024;
const zeros = Buffer.alloc(blockBytes);
/** Blocks on their way: one is read while another is hashed. */
const blocksAtOnce = 2;
const trustedForMs = 3_600_000;
const maxTrusted = 10_000;
const mapTimeoutMs = 30_000;
const mapLimitBytes = 64 * 1024 * 1024;

/** What was saved of a sandbox is not what it was. */
export class DamagedFileError extends Error {
  override name = 'DamagedFileError';
}

/** What of a snapshot is compared: memory and device state, or its disk. */
export type SnapshotPart = 'memory' | 'disk';

const filesOf: Record<SnapshotPart, readonly string[]> = {
  memory: ['memory', 'state'],
  disk: ['disk.qcow2'],
};

/** Makes and compares them, and remembers what was compared. */
export class Checksums {
  /** By path: what the inode said when it was read. */
  readonly #trusted = new Map<string, { mark: string; atMs: number }>();

  /** Brings a snapshot to the disk for good, with the checksums of its files; nothing happens when it has them. */
  async settle(folder: string, signal: AbortSignal): Promise<void> {
    if (await readChecksums(folder)) return;
    const sums: Record<string, string> = {};
    for (const name of Object.values(filesOf).flat()) {
      const path = join(folder, name);
      const file = await open(path, 'r').catch(ignoreMissing);
      if (!file) continue;
      try {
        await file.datasync();
        const mark = await markOf(file);
        sums[name] = await sumOfFile(path, file, signal);
        this.#trust(path, mark);
      } finally {
        await file.close();
      }
    }
    const passing = join(folder, `${checksumsFile}.tmp`);
    await rm(passing, { force: true });
    await writeFile(passing, JSON.stringify(sums), { mode: 0o400, flush: true });
    await rename(passing, join(folder, checksumsFile));
    await syncToDisk(folder);
  }

  /** Whether a snapshot has them: it is, or was, part of a checkpoint. */
  async has(folder: string): Promise<boolean> {
    return (await readChecksums(folder)) !== undefined;
  }

  /**
   * Compares a part of a snapshot with its checksums.
   * @throws DamagedFileError
   */
  async verify(folder: string, part: SnapshotPart, signal: AbortSignal): Promise<void> {
    const sums = await readChecksums(folder);
    for (const name of filesOf[part]) {
      const path = join(folder, name);
      const sum = sums?.[name];
      if (sum === undefined) throw damaged(path, 'its checksum is missing');
      const file = await open(path, 'r').catch(ignoreMissing);
      if (!file) throw damaged(path, 'it is missing');
      try {
        const mark = await markOf(file);
        const trusted = this.#trusted.get(path);
        const isFresh = trusted !== undefined && performance.now() - trusted.atMs < trustedForMs;
        if (isFresh && trusted.mark === mark) continue;
        this.#trusted.delete(path);
        if ((await sumOfFile(path, file, signal)) !== sum)
          throw damaged(path, 'it is not what was written when it was saved');
        this.#trust(path, mark);
      } finally {
        await file.close();
      }
    }
  }

  /** Forgets what it remembers of a folder that is gone. */
  forget(folder: string): void {
    for (const name of Object.values(filesOf).flat()) this.#trusted.delete(join(folder, name));
  }

  #trust(path: string, mark: string): void {
    if (this.#trusted.size < maxTrusted) this.#trusted.set(path, { mark, atMs: performance.now() });
  }
}

function damaged(path: string, why: string): DamagedFileError {
  return new DamagedFileError(`${basename(path)} of what was saved is damaged: ${why} (${path})`);
}

/** Changes with every write, and with nothing else that is done to a snapshot: names come and go. */
async function markOf(file: FileHandle): Promise<string> {
  const { ino, size, mtimeNs } = await file.stat({ bigint: true });
  return `${ino} ${size} ${mtimeNs}`;
}

/** SHA-256 over the size and the digests of all blocks that are not all zero, each with its place. */
async function sumOfFile(path: string, file: FileHandle, signal: AbortSignal): Promise<string> {
  const { size } = await file.stat();
  const digests: string[] = [`${size}`];
  const blocks = await blocksWithData(path, size, signal);
  let next = 0;
  const worker = async () => {
    const buffer = Buffer.alloc(blockBytes);
    while (next < blocks.length) {
      const at = next++;
      const block = blocks[at] ?? 0;
      signal.throwIfAborted();
      const wanted = Math.min(blockBytes, size - block * blockBytes);
      let bytes = 0;
      while (bytes < wanted) {
        const { bytesRead } = await file.read(buffer, bytes, wanted - bytes, block * blockBytes + bytes);
        if (bytesRead === 0) throw damaged(path, 'it ends too early');
        bytes += bytesRead;
      }
      if (buffer.subarray(0, wanted).equals(zeros.subarray(0, wanted))) continue;
      const digest = await webcrypto.subtle.digest('SHA-256', buffer.subarray(0, wanted));
      digests[at + 1] = `${block} ${Buffer.from(digest).toString('hex')}`;
    }
  };
  await Promise.all(Array.from({ length: blocksAtOnce }, worker));
  const all = Buffer.from(digests.filter((line) => line !== undefined).join('\n'));
  return Buffer.from(await webcrypto.subtle.digest('SHA-256', all)).toString('hex');
}

/**
 * Numbers of the blocks that may hold something, in order. Holes of a memory file are most of it, and reading them
 * would fill the page cache with zeroes. All blocks where the file system does not tell.
 */
async function blocksWithData(path: string, size: number, signal: AbortSignal): Promise<number[]> {
  const count = Math.ceil(size / blockBytes);
  const all = () => Array.from({ length: count }, (_, block) => block);
  if (size < 16 * blockBytes) return all();
  try {
    const { stdout } = await promisify(execFile)('qemu-img', ['map', '--output=json', '-f', 'raw', path], {
      signal,
      timeout: mapTimeoutMs,
      maxBuffer: mapLimitBytes,
    });
    const found = new Set<number>();
    for (const { start, length, data } of JSON.parse(stdout) as Extent[]) {
      if (!data) continue;
      const last = Math.floor((start + length - 1) / blockBytes);
      for (let block = Math.floor(start / blockBytes); block <= last; block++) found.add(block);
    }
    return [...found].filter((block) => block < count).sort((a, b) => a - b);
  } catch {
    signal.throwIfAborted();
    return all();
  }
}

interface Extent {
  start: number;
  length: number;
  data: boolean;
}

async function readChecksums(folder: string): Promise<Record<string, string> | undefined> {
  try {
    return JSON.parse(await readFile(join(folder, checksumsFile), 'utf8')) as Record<string, string>;
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
