/**
 * Unpacks a tar stream that comes out of a sandbox into a local folder. The stream is untrusted:
 * nothing outside the folder is ever written or followed, links are made last and never written
 * through, devices are left out, setuid bits and owners are dropped.
 */
import { createWriteStream } from 'node:fs';
import { chmod, link, lstat, mkdir, rm, symlink, utimes } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as tar from 'tar-stream';
import { SandlotError } from '../errors.js';
import type { SkipReport } from './pack-directory.js';

/** Unpacks below `folder`, which is made if it is missing. */
export async function unpackDirectory(
  source: AsyncIterable<Uint8Array>,
  folder: string,
  onSkip: SkipReport,
  onFile: (bytes: number) => void,
): Promise<void> {
  await makeRoot(folder);
  const extract = tar.extract();
  // A failure of the source must end the loop below with its own error.
  const feeding = pipeline(Readable.from(source), extract as unknown as NodeJS.WritableStream).catch(
    (error: unknown) => {
      if (!extract.destroyed) extract.destroy(error instanceof Error ? error : new Error(String(error)));
      throw error;
    },
  );
  feeding.catch(() => undefined);
  const symlinks: { name: string; target: string }[] = [];
  const folders: { name: string; mode: number; mtime: Date | undefined }[] = [];
  try {
    for await (const entry of extract) {
      const { header } = entry;
      const name = safeName(header.name);
      if (name === undefined) {
        onSkip(header.name, 'its name leads outside the folder');
        entry.resume();
        continue;
      }
      const mode = (header.mode ?? 0o644) & 0o777;
      if (header.type === 'directory') {
        if (name !== '') await makeFolder(folder, name);
        folders.push({ name, mode, mtime: header.mtime });
        entry.resume();
      } else if (header.type === 'file' || header.type === 'contiguous-file') {
        const target = await prepare(folder, name);
        await pipeline(
          countBytes(entry as AsyncIterable<Uint8Array>, onFile),
          createWriteStream(target, { flags: 'wx', mode: 0o600 }),
        );
        await chmod(target, mode);
        if (header.mtime) await utimes(target, header.mtime, header.mtime);
      } else if (header.type === 'symlink') {
        symlinks.push({ name, target: header.linkname ?? '' });
        entry.resume();
      } else if (header.type === 'link') {
        const existing = safeName(header.linkname ?? '');
        if (existing === undefined || !(await isPlainFile(folder, existing))) {
          onSkip(header.name, 'it is a hard link to something outside the folder');
        } else await link(path.join(folder, existing), await prepare(folder, name));
        entry.resume();
      } else {
        onSkip(header.name, `it is a ${header.type ?? 'thing'} that is not made on this side`);
        entry.resume();
      }
    }
    await feeding;
    for (const one of symlinks) {
      if ((await lstatOrUndefined(path.join(folder, one.name)))?.isDirectory()) {
        onSkip(one.name, 'a folder of the same name came after this link');
      } else await symlink(one.target, await prepare(folder, one.name));
    }
    // Last and deepest first: a folder may be without write permission, and its time moves with its content.
    for (const one of folders.reverse()) {
      const full = path.join(folder, one.name);
      await chmod(full, one.mode);
      if (one.mtime) await utimes(full, one.mtime, one.mtime);
    }
  } catch (cause) {
    if (cause instanceof SandlotError) throw cause;
    throw new SandlotError(
      `the folder cannot be unpacked into ${folder}: ${cause instanceof Error ? cause.message : cause}`,
      { code: 'LOCAL_FILE', cause },
    );
  } finally {
    extract.destroy();
  }
}

async function makeRoot(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
  } catch (cause) {
    throw new SandlotError(
      `the folder ${folder} cannot be made: ${cause instanceof Error ? cause.message : cause}`,
      { code: 'LOCAL_FILE', cause, hint: 'Name a folder, or a path where nothing is yet.' },
    );
  }
}

async function* countBytes(source: AsyncIterable<Uint8Array>, onFile: (bytes: number) => void) {
  for await (const chunk of source) {
    onFile(chunk.byteLength);
    yield chunk;
  }
}

/** The name without leading `./`; `''` for the folder itself, undefined where it would leave it. */
export function safeName(name: string): string | undefined {
  if (name.includes('\0') || name.startsWith('/')) return undefined;
  const parts = name.split('/').filter((part) => part !== '' && part !== '.');
  return parts.includes('..') ? undefined : parts.join('/');
}

/** Makes each part, refusing to walk through anything that is not a real folder. */
async function makeFolder(root: string, name: string): Promise<void> {
  let at = root;
  for (const part of name.split('/')) {
    at = path.join(at, part);
    const stat = await lstatOrUndefined(at);
    if (stat?.isDirectory()) continue;
    if (stat) {
      throw new SandlotError(`${at} is in the way: it is not a folder. Move it, or choose another target.`, {
        code: 'LOCAL_FILE',
      });
    }
    await mkdir(at, { mode: 0o700 });
  }
}

/** Full path for a new entry: parents exist, and what was there before (a link, say) is gone. */
async function prepare(root: string, name: string): Promise<string> {
  if (name === '') throw new SandlotError('the archive has an entry without a name', { code: 'BAD_ANSWER' });
  const parent = path.posix.dirname(name);
  if (parent !== '.') await makeFolder(root, parent);
  const full = path.join(root, name);
  await rm(full, { force: true });
  return full;
}

async function isPlainFile(root: string, name: string): Promise<boolean> {
  let at = root;
  const parts = name.split('/');
  for (const [index, part] of parts.entries()) {
    at = path.join(at, part);
    const stat = await lstatOrUndefined(at);
    if (index === parts.length - 1) return stat?.isFile() ?? false;
    if (!stat?.isDirectory()) return false;
  }
  return false;
}

async function lstatOrUndefined(full: string) {
  try {
    return await lstat(full);
  } catch {
    return undefined;
  }
}
