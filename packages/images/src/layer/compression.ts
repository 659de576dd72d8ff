/**
 * Which compression a layer or archive has, told from its first bytes: registries and archives label layers
 * wrongly often enough. Called by the layer reader and the archive importer.
 */
import { ImageError } from '../store.js';

/** How bytes are packed. */
export type Compression = 'gzip' | 'zstd' | 'plain';

const OTHERS: [magic: number[], name: string][] = [
  [[0x42, 0x5a, 0x68], 'bzip2'],
  [[0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00], 'xz'],
  [[0x04, 0x22, 0x4d, 0x18], 'lz4'],
  [[0x5d, 0x00, 0x00], 'lzma'],
  [[0x4c, 0x5a, 0x49, 0x50], 'lzip'],
  [[0x50, 0x4b, 0x03, 0x04], 'zip'],
];

/** Bytes that {@link detectCompression} wants to see (fewer only if there are no more). */
export const DETECT_BYTES = 512;

/** Looks at the beginning of the data. Throws `unknown-compression` if it is neither a tar nor gzip nor zstd. */
export function detectCompression(head: Buffer, what: string): Compression {
  if (head.length >= 2 && head[0] === 0x1f && head[1] === 0x8b) return 'gzip';
  if (head.length >= 4 && (isMagic(head, [0x28, 0xb5, 0x2f, 0xfd]) || isSkippableZstd(head))) return 'zstd';
  // A tar first: any of the other marks could begin the name of a file.
  if (head.length === 0 || looksLikeTar(head)) return 'plain';
  const other = OTHERS.find(([magic]) => isMagic(head, magic))?.[1];
  throw new ImageError(
    'unknown-compression',
    other
      ? `${what} is compressed with ${other}, which images may not use; only gzip, zstd and plain tar are supported`
      : `${what} begins with neither a tar header nor the mark of gzip or zstd; it is damaged or not an image layer`,
  );
}

function isMagic(head: Buffer, magic: number[]): boolean {
  return magic.every((byte, index) => head[index] === byte);
}

/** zstd data may begin with skippable frames, as zstd:chunked and others write (RFC 8878, 3.1.2). */
function isSkippableZstd(head: Buffer): boolean {
  return (head[0]! & 0xf0) === 0x50 && isMagic(head.subarray(1), [0x2a, 0x4d, 0x18]);
}

/** A header with a checksum, or the zeros that end an empty archive. */
function looksLikeTar(head: Buffer): boolean {
  if (head.every((byte) => byte === 0)) return true;
  if (head.length < 512) return false;
  if (head.toString('latin1', 257, 262) === 'ustar') return true;
  let sum = 0;
  for (let i = 0; i < 512; i++) sum += i >= 148 && i < 156 ? 32 : head[i]!;
  const stored = Number.parseInt(
    head
      .toString('latin1', 148, 156)
      .replace(/[^0-7]/g, ' ')
      .trim(),
    8,
  );
  return sum === stored;
}
