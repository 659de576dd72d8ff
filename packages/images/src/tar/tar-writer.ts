/**
 * Tar headers in the GNU form, the one in which `mke2fs -d` (libarchive) takes names as raw bytes. Numbers that
 * do not fit are base-256. Called by the rootfs emitter and by test fixtures.
 */

/** What a header says. Names are byte strings, see `tar-entry.ts`. */
export interface TarHeaderFields {
  typeFlag: '0' | '1' | '2' | '3' | '4' | '5' | '6' | 'L' | 'K' | 'x';
  name: string;
  linkName?: string;
  mode: number;
  uid: number;
  gid: number;
  size: number;
  mtimeSeconds: number;
  deviceMajor?: number;
  deviceMinor?: number;
  /** Also written as access and change time, which mke2fs takes over; 0 leaves them out. */
  changeTimeSeconds?: number;
}

/** Bytes that fill a tar entry of `size` up to the next block. */
export function tarPadding(size: number): number {
  return (512 - (size % 512)) % 512;
}

/** The header blocks of an entry, long-name entries included. */
export function encodeTarHeader(fields: TarHeaderFields): Buffer {
  const link = fields.linkName ?? '';
  const blocks: Buffer[] = [];
  if (link.length > 100) blocks.push(longNameEntry('K', link));
  if (fields.name.length > 100) blocks.push(longNameEntry('L', fields.name));
  blocks.push(headerBlock(fields, fields.name.slice(0, 100), link.slice(0, 100)));
  return blocks.length === 1 ? blocks[0]! : Buffer.concat(blocks);
}

function longNameEntry(typeFlag: 'L' | 'K', value: string): Buffer {
  const size = value.length + 1;
  const header = headerBlock(
    { typeFlag, name: '', mode: 0, uid: 0, gid: 0, size, mtimeSeconds: 0 },
    '././@LongLink',
    '',
  );
  const body = Buffer.alloc(size + tarPadding(size));
  body.write(value, 0, 'latin1');
  return Buffer.concat([header, body]);
}

function headerBlock(fields: TarHeaderFields, name: string, link: string): Buffer {
  const block = Buffer.alloc(512);
  block.write(name, 0, 'latin1');
  putNumber(block, 100, 8, fields.mode);
  putNumber(block, 108, 8, fields.uid);
  putNumber(block, 116, 8, fields.gid);
  putNumber(block, 124, 12, fields.size);
  putNumber(block, 136, 12, fields.mtimeSeconds);
  block.write('        ', 148, 'latin1');
  block.write(fields.typeFlag, 156, 'latin1');
  block.write(link, 157, 'latin1');
  block.write('ustar  \0', 257, 'latin1');
  if (fields.typeFlag === '3' || fields.typeFlag === '4') {
    putNumber(block, 329, 8, fields.deviceMajor ?? 0);
    putNumber(block, 337, 8, fields.deviceMinor ?? 0);
  }
  if (fields.changeTimeSeconds) {
    putNumber(block, 345, 12, fields.changeTimeSeconds);
    putNumber(block, 357, 12, fields.changeTimeSeconds);
  }
  let sum = 0;
  for (let i = 0; i < 512; i++) sum += block[i]!;
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

function putNumber(block: Buffer, start: number, length: number, value: number): void {
  const octal = value.toString(8);
  if (value >= 0 && octal.length < length) {
    block.write(octal.padStart(length - 1, '0'), start, 'latin1');
    return;
  }
  let rest = BigInt(value);
  for (let i = length - 1; i > 0; i--) {
    block[start + i] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  block[start] = value < 0 ? 0xff : 0x80;
}

/** A PAX record with its own length in front. */
export function paxRecord(key: string, value: Buffer | string): Buffer {
  const body = Buffer.concat([Buffer.from(` ${key}=`, 'latin1'), Buffer.from(value), Buffer.from('\n')]);
  let length = body.length + 1;
  while (`${length}`.length + body.length !== length) length = `${length}`.length + body.length;
  return Buffer.concat([Buffer.from(`${length}`), body]);
}
