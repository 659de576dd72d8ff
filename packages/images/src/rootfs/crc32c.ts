/** The checksum of ext4's metadata (CRC-32C, Castagnoli). Used by `disk-fit.ts`. */

const table = new Uint32Array(256);
for (let byte = 0; byte < 256; byte++) {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0x82f63b78 : value >>> 1;
  table[byte] = value;
}

/** As ext4 has it: begun with all ones or an earlier result, and without the inversion at the end that others make. */
export function crc32c(bytes: Uint8Array, begin = 0xffffffff): number {
  let value = begin;
  for (const byte of bytes) value = table[(value ^ byte) & 0xff]! ^ (value >>> 8);
  return value >>> 0;
}
