/**
 * One layer made readable at any offset. A plain layer is read where it lies; a compressed one is unpacked once
 * into an unnamed-by-the-image temporary file. In the same pass its entries are reported and its digests checked.
 * Called by the rootfs build.
 */
import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { throwIfAborted } from '../fault.js';
import type { ImageLimits } from '../limits.js';
import type { ChildUser } from '../process/child.js';
import { ImageError } from '../store.js';
import type { TarEntry } from '../tar/tar-entry.js';
import { TarReader } from '../tar/tar-reader.js';
import { detectCompression } from './compression.js';
import { decompress, readHead } from './decompress.js';

/** What {@link unpackLayer} needs to know. */
export interface UnpackOptions {
  blobPath: string;
  digest: string;
  /** Digest of the uncompressed tar, from the image's config. */
  diffId: string;
  /** Where to put the uncompressed bytes if the layer is compressed; made anew. */
  temporaryPath: string;
  /** The entries of a plain layer, if they are known already. */
  entries?: TarEntry[] | undefined;
  limits: ImageLimits;
  user: ChildUser | undefined;
  signal?: AbortSignal | undefined;
  onEntry(entry: TarEntry): void;
  /** Uncompressed bytes since the last call. */
  onBytes?(bytes: number): void;
}

const ZEROS = Buffer.alloc(256 * 1024);

/** Reads a layer through and answers the open file with its uncompressed bytes. The caller closes it. */
export async function unpackLayer(options: UnpackOptions): Promise<FileHandle> {
  const what = `layer ${options.digest}`;
  const blob = await open(options.blobPath, 'r');
  let target: FileHandle | undefined;
  try {
    const isPlain = detectCompression(await readHead(blob), what) === 'plain';
    if (isPlain && options.digest === options.diffId) {
      if (options.entries) options.entries.forEach(options.onEntry);
      else await indexPlain(blob, options);
      return blob;
    }
    if (!isPlain) target = await open(options.temporaryPath, 'wx+', 0o600);
    const reader = new TarReader(options.limits, options.onEntry);
    const algorithm = options.diffId.split(':')[0]!;
    const hash = createHash(algorithm);
    const { user, signal, limits } = options;
    let position = 0;
    for await (const chunk of decompress(blob, { user, what, maxBytes: limits.maxLayerBytes, signal })) {
      hash.update(chunk);
      reader.write(chunk);
      if (target) await writeSparse(target, chunk, position);
      position += chunk.length;
      options.onBytes?.(chunk.length);
    }
    reader.finish();
    await target?.truncate(position);
    const actual = `${algorithm}:${hash.digest('hex')}`;
    if (actual !== options.diffId) {
      throw new ImageError(
        'digest-mismatch',
        `${what} unpacks to ${actual}, but the image's config promises ${options.diffId}; the image is damaged or was tampered with`,
      );
    }
    if (!target) return blob;
    await blob.close();
    return target;
  } catch (error) {
    await blob.close().catch(() => undefined);
    await target?.close().catch(() => undefined);
    throw error;
  }
}

/** What a read of headers fetches at once; content that reaches beyond it is jumped over. */
const INDEX_CHUNK = 1 << 20;

/** A plain layer was hashed when it was stored, and its content need not be looked at: only headers are read. */
async function indexPlain(blob: FileHandle, options: UnpackOptions): Promise<void> {
  const { size } = await blob.stat();
  if (size > options.limits.maxLayerBytes) {
    throw new ImageError('too-large', `layer ${options.digest} has ${size} bytes, more than the limit here`);
  }
  const reader = new TarReader(options.limits, options.onEntry);
  const buffer = Buffer.allocUnsafe(INDEX_CHUNK);
  for (let position = 0; position < size; ) {
    throwIfAborted(options.signal, `reading layer ${options.digest}`);
    const jump = Math.min(reader.skippableBytes, size - position);
    if (jump > 0) reader.skip(jump);
    const { bytesRead } = await blob.read(buffer, 0, buffer.length, position + jump);
    reader.write(buffer.subarray(0, bytesRead));
    options.onBytes?.(jump + bytesRead);
    position += jump + bytesRead;
    if (bytesRead === 0) break;
  }
  reader.finish();
}

/** Leaves holes for zeros, so that an archive of nothing costs no disk. */
async function writeSparse(target: FileHandle, chunk: Buffer, position: number): Promise<void> {
  if (chunk.length <= ZEROS.length && chunk.equals(ZEROS.subarray(0, chunk.length))) return;
  let offset = 0;
  while (offset < chunk.length) {
    const { bytesWritten } = await target.write(chunk, offset, chunk.length - offset, position + offset);
    offset += bytesWritten;
  }
}
