/**
 * Takes an archive that arrives as a stream into one plain tar file in the store's `tmp`, whatever it was compressed
 * with, and lists what is in it. A stream has to be kept: `manifest.json` often comes last. Called by the import.
 */
import { createHash } from 'node:crypto';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { throwIfAborted } from '../fault.js';
import { detectCompression } from '../layer/compression.js';
import { decompress, readHead } from '../layer/decompress.js';
import type { ImageLimits } from '../limits.js';
import type { ChildUser } from '../process/child.js';
import { BatchWriter } from '../store/batch-writer.js';
import { ImageError } from '../store.js';
import { TarReader } from '../tar/tar-reader.js';
import { TarMembers } from './member-files.js';

/** Archives with more members at the top are root file systems, whose members need no list. */
const MAX_MEMBERS = 20_000;

/** A spooled archive. The caller closes `file` and removes `path`. */
export interface SpooledArchive {
  path: string;
  file: FileHandle;
  members: TarMembers;
  entries: number;
  /** Of the plain tar: its digest as a layer. */
  digest: string;
  size: number;
}

/** What {@link spoolArchive} needs to know. */
export interface SpoolOptions {
  folder: string;
  limits: ImageLimits;
  user: ChildUser | undefined;
  signal: AbortSignal;
  /** Bytes received so far. */
  onReceived(bytes: number): void;
}

/** Receives, unpacks and lists. */
export async function spoolArchive(
  archive: AsyncIterable<Uint8Array>,
  options: SpoolOptions,
): Promise<SpooledArchive> {
  const rawPath = `${options.folder}/received`;
  const raw = await receive(archive, rawPath, options);
  const isPlain = await detect(raw).catch(async (error) => {
    await raw.close();
    throw error;
  });
  const path = isPlain ? rawPath : `${options.folder}/archive.tar`;
  const file = isPlain ? raw : await open(path, 'wx+', 0o600);
  try {
    const listed = await unpackAndList(raw, isPlain ? undefined : file, file, options);
    if (!isPlain) await rm(rawPath);
    return { path, file, ...listed };
  } catch (error) {
    await file.close();
    throw error;
  } finally {
    if (!isPlain) await raw.close();
  }
}

async function detect(raw: FileHandle): Promise<boolean> {
  const head = await readHead(raw);
  if (head.length === 0) {
    throw new ImageError('truncated', 'the archive is empty; nothing was sent');
  }
  return detectCompression(head, 'the archive') === 'plain';
}

async function receive(
  archive: AsyncIterable<Uint8Array>,
  path: string,
  options: SpoolOptions,
): Promise<FileHandle> {
  const file = await open(path, 'wx+', 0o600);
  const writer = new BatchWriter(file);
  let received = 0;
  try {
    for await (const chunk of untilAborted(archive, options.signal)) {
      received += chunk.length;
      if (received > options.limits.maxBlobBytes) {
        throw new ImageError('too-large', `the archive has more than ${options.limits.maxBlobBytes} bytes`);
      }
      await writer.write(chunk);
      options.onReceived(received);
    }
    await writer.flush();
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function unpackAndList(
  raw: FileHandle,
  target: FileHandle | undefined,
  plain: FileHandle,
  options: SpoolOptions,
): Promise<{ members: TarMembers; entries: number; digest: string; size: number }> {
  const { limits, user, signal } = options;
  const members = new TarMembers(plain, MAX_MEMBERS);
  let entries = 0;
  const reader = new TarReader(limits, (entry) => {
    entries++;
    members.add(entry);
  });
  const hash = createHash('sha256');
  let size = 0;
  const what = 'the archive';
  for await (const chunk of decompress(raw, { user, what, maxBytes: limits.maxLayerBytes, signal })) {
    hash.update(chunk);
    reader.write(chunk);
    size += chunk.length;
    await target?.writeFile(chunk);
  }
  reader.finish();
  if (entries === 0) throw new ImageError('invalid-layer', 'the archive has no files in it');
  return { members, entries, digest: `sha256:${hash.digest('hex')}`, size };
}

/** The stream, except that a sender who falls silent does not keep us when the import is cancelled. */
async function* untilAborted(
  archive: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const iterator = archive[Symbol.asyncIterator]();
  let giveUp: () => void = () => undefined;
  const aborted = new Promise<undefined>((resolve) => {
    giveUp = () => resolve(undefined);
    signal.addEventListener('abort', giveUp, { once: true });
  });
  let isDone = false;
  try {
    for (;;) {
      throwIfAborted(signal, 'receiving the archive');
      const result = await Promise.race([iterator.next(), aborted]);
      if (result === undefined) continue;
      if (result.done) {
        isDone = true;
        return;
      }
      yield result.value;
    }
  } finally {
    signal.removeEventListener('abort', giveUp);
    // Not awaited: a generator that waits for its sender would not come back either.
    if (!isDone) iterator.return?.()?.catch(() => undefined);
  }
}
