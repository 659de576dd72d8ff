/**
 * Decoding of one 512-byte tar header block: v7, ustar, GNU and star. Formats:
 * POSIX pax(1) and the GNU tar manual, "Basic Tar Format". Used by the reader only.
 */
import { ImageError } from '../store.js';

/** The fields of a header block before PAX records are applied. */
export interface RawHeader {
  name: string;
  mode: number;
  uid: number;
  gid: number;
  size: number;
  mtime: number;
  typeFlag: string;
  linkName: string;
  deviceMajor: number;
  deviceMinor: number;
  isGnu: boolean;
}

/** True if the block is all zeros, which marks the end of an archive. */
export function isZeroBlock(block: Buffer): boolean {
  for (let i = 0; i < 512; i++) if (block[i] !== 0) return false;
  return true;
}

/** Decodes a header; throws `invalid-layer` if the checksum is wrong or a number is out of range. */
export function decodeHeader(block: Buffer, at: number): RawHeader {
  verifyChecksum(block, at);
  const magic = block.toString('latin1', 257, 265);
  const isGnu = magic === 'ustar  \0';
  const isUstar = magic.startsWith('ustar\0');
  const isStar = isUstar && block.toString('latin1', 508, 512) === 'tar\0';
  let name = byteString(block, 0, 100);
  if (isUstar) {
    const prefix = byteString(block, 345, isStar ? 131 : 155);
    if (prefix !== '') name = `${prefix}/${name}`;
  }
  const typeFlag = String.fromCharCode(block[156]!);
  // Only devices carry these fields; others often leave garbage or spaces there.
  const isDevice = typeFlag === '3' || typeFlag === '4';
  return {
    name,
    mode: readNumber(block, 100, 8, at) & 0o7777,
    uid: readNumber(block, 108, 8, at),
    gid: readNumber(block, 116, 8, at),
    size: readNumber(block, 124, 12, at),
    mtime: readNumber(block, 136, 12, at),
    typeFlag,
    linkName: byteString(block, 157, 100),
    deviceMajor: isDevice ? readNumber(block, 329, 8, at) : 0,
    deviceMinor: isDevice ? readNumber(block, 337, 8, at) : 0,
    isGnu,
  };
}

/** A field up to its first NUL, one character a byte. */
export function byteString(block: Buffer, start: number, length: number): string {
  const end = block.indexOf(0, start);
  return block.toString('latin1', start, end === -1 || end > start + length ? start + length : end);
}

/** An octal or base-256 number. */
export function readNumber(block: Buffer, start: number, length: number, at: number): number {
  const first = block[start]!;
  if (first & 0x80) return readBase256(block, start, length, at);
  // Padded with spaces before and with a space or NUL behind.
  const text = block
    .toString('latin1', start, start + length)
    .split('\0')[0]!
    .trim();
  if (text === '') return 0;
  if (!/^[0-7]+$/.test(text)) throw badHeader(at, `the number ${JSON.stringify(text)} is not octal`);
  return safe(Number.parseInt(text, 8), at);
}

function readBase256(block: Buffer, start: number, length: number, at: number): number {
  const negative = (block[start]! & 0x40) !== 0;
  let value = BigInt(negative ? block[start]! | -0x100 : block[start]! & 0x7f);
  for (let i = 1; i < length; i++) value = (value << 8n) | BigInt(block[start + i]!);
  return safe(Number(value), at);
}

function safe(value: number, at: number): number {
  if (!Number.isSafeInteger(value)) throw badHeader(at, 'a number in it is too large');
  return value;
}

function verifyChecksum(block: Buffer, at: number): void {
  let unsigned = 0;
  let signed = 0;
  for (let i = 0; i < 512; i++) {
    const byte = i >= 148 && i < 156 ? 32 : block[i]!;
    unsigned += byte;
    signed += byte > 127 ? byte - 256 : byte;
  }
  const stored = readNumber(block, 148, 8, at);
  // Some old writers summed signed characters.
  if (stored !== unsigned && stored !== signed) throw badHeader(at, 'its checksum is wrong');
}

/** The error for a header that cannot be understood. */
export function badHeader(at: number, why: string): ImageError {
  return new ImageError(
    'invalid-layer',
    `the tar header at byte ${at} is not valid: ${why}; the layer is damaged or not a tar archive`,
  );
}
