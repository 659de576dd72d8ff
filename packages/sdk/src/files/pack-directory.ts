/** A local folder as a tar stream for upload. Links stay links; sockets and devices are left out and reported. */
import { createReadStream } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import * as tar from 'tar-stream';
import { SandlotError } from '../errors.js';

type TarHeader = Parameters<tar.Pack['entry']>[0];

/** What was left out, and why. */
export type SkipReport = (name: string, reason: string) => void;

/** Streams the folder's content, names relative to it, in a stable order. */
export async function* packDirectory(
  folder: string,
  onSkip: SkipReport,
  onFile: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  const pack = tar.pack();
  const filling = fill(pack, folder, '', onSkip, onFile).then(
    () => pack.finalize(),
    (error: unknown) => pack.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  try {
    for await (const chunk of pack) yield chunk as Uint8Array;
    await filling;
  } finally {
    pack.destroy();
  }
}

async function fill(
  pack: tar.Pack,
  folder: string,
  prefix: string,
  onSkip: SkipReport,
  onFile: (bytes: number) => void,
): Promise<void> {
  const names = (await readdir(path.join(folder, prefix))).sort();
  for (const name of names) {
    const relative = prefix === '' ? name : `${prefix}/${name}`;
    const full = path.join(folder, relative);
    const stat = await lstat(full);
    const header = { name: relative, mode: stat.mode & 0o7777, mtime: stat.mtime };
    if (stat.isDirectory()) {
      await write(pack, { ...header, type: 'directory' });
      await fill(pack, folder, relative, onSkip, onFile);
    } else if (stat.isSymbolicLink()) {
      await write(pack, { ...header, type: 'symlink', linkname: await readlink(full) });
    } else if (stat.isFile()) {
      await writeFile(pack, { ...header, type: 'file', size: stat.size }, full, onFile);
    } else {
      onSkip(relative, 'is a socket, device or pipe');
    }
  }
}

function write(pack: tar.Pack, header: TarHeader): Promise<void> {
  return new Promise((resolve, reject) => {
    pack.entry(header, (error) => (error ? reject(error) : resolve())).end(undefined);
  });
}

/** The size in the header binds: a file that grows meanwhile is cut at it, one that shrinks is an error. */
async function writeFile(
  pack: tar.Pack,
  header: TarHeader & { size: number },
  full: string,
  onFile: (bytes: number) => void,
): Promise<void> {
  const written = new Promise<void>((resolve, reject) => {
    const entry = pack.entry(header, (error) => (error ? reject(error) : resolve()));
    // Reported by the callback; without a listener it would end the process as well.
    entry.on('error', () => undefined);
    const copy = async () => {
      let left = header.size;
      if (header.size > 0) {
        for await (const chunk of createReadStream(full, {
          end: header.size - 1,
          highWaterMark: 256 * 1024,
        })) {
          const { byteLength } = chunk as Uint8Array;
          left -= byteLength;
          onFile(byteLength);
          if (!entry.write(chunk)) await drained(entry);
        }
      }
      if (left > 0) throw new Error(`it is ${left} bytes shorter than it was`);
      entry.end(undefined);
    };
    copy().catch(reject);
  });
  try {
    await written;
  } catch (cause) {
    throw new SandlotError(`${full} cannot be packed: it vanished, changed its size or cannot be read`, {
      code: 'LOCAL_FILE',
      cause,
    });
  }
}

/** Resolves when the entry takes more, or is closed because the upload was given up. */
function drained(entry: ReturnType<tar.Pack['entry']>): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      entry.off('drain', done);
      entry.off('close', done);
      resolve();
    };
    entry.on('drain', done);
    entry.on('close', done);
  });
}
