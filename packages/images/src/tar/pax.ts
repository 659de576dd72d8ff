/**
 * PAX extended headers: the records, their times, extended attributes and sparse maps. Values are bytes and may
 * contain anything, newlines included, so records are cut by their stated length. Used by the reader only.
 */
import { ImageError } from '../store.js';

/** Records in the order of the header; a key may repeat (`GNU.sparse.offset`). Keys and values are byte strings. */
export type PaxRecords = [key: string, value: string][];

/** Splits the body of a PAX header. */
export function parsePaxRecords(body: Buffer, at: number): PaxRecords {
  const records: PaxRecords = [];
  let position = 0;
  while (position < body.length) {
    const space = body.indexOf(0x20, position);
    const lengthText = space === -1 || space - position > 10 ? '' : body.toString('latin1', position, space);
    const length = /^[0-9]+$/.test(lengthText) ? Number.parseInt(lengthText, 10) : 0;
    const end = position + length;
    const equals = body.indexOf(0x3d, space + 1);
    if (length < 5 || end > body.length || body[end - 1] !== 0x0a || equals === -1 || equals >= end - 1) {
      // GNU tar and others pad the body with NULs; anything else is damage.
      if (length === 0 && body[position] === 0) return records;
      throw badPax(at, 'a record has a wrong length');
    }
    records.push([body.toString('latin1', space + 1, equals), body.toString('latin1', equals + 1, end - 1)]);
    position = end;
  }
  return records;
}

/** A PAX time such as `-1.5` as whole seconds rounded down, and nanoseconds. */
export function parsePaxTime(text: string, at: number): { seconds: number; nanoseconds: number } {
  const match = /^(-?)([0-9]{1,15})(?:\.([0-9]*))?$/.exec(text);
  if (!match) throw badPax(at, `the time ${JSON.stringify(text.slice(0, 40))} is not a number`);
  const whole = Number(match[2]);
  const nanoseconds = Number((match[3] ?? '').slice(0, 9).padEnd(9, '0'));
  if (match[1] === '') return { seconds: whole, nanoseconds };
  return nanoseconds === 0
    ? { seconds: -whole, nanoseconds: 0 }
    : { seconds: -whole - 1, nanoseconds: 1e9 - nanoseconds };
}

/** A decimal number of a PAX record. */
export function parsePaxNumber(text: string, at: number): number {
  const value = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value)) throw badPax(at, `${JSON.stringify(text.slice(0, 40))} is not a number`);
  return value;
}

/** Extended attributes of the records, or undefined. `SCHILY.xattr` wins over libarchive's own form. */
export function xattrsOf(records: PaxRecords): Map<string, Buffer> | undefined {
  let xattrs: Map<string, Buffer> | undefined;
  for (const [key, value] of records) {
    if (!key.startsWith('LIBARCHIVE.xattr.') || value === '') continue;
    xattrs ??= new Map();
    const name = key
      .slice('LIBARCHIVE.xattr.'.length)
      .replace(/%([0-9A-Fa-f]{2})/g, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
    xattrs.set(name, Buffer.from(value, 'base64'));
  }
  for (const [key, value] of records) {
    // An empty value deletes the record (POSIX), as Docker's unpacker has it too.
    if (!key.startsWith('SCHILY.xattr.') || value === '') continue;
    xattrs ??= new Map();
    xattrs.set(key.slice('SCHILY.xattr.'.length), Buffer.from(value, 'latin1'));
  }
  return xattrs;
}

/** The error for a PAX header that cannot be understood. */
export function badPax(at: number, why: string): ImageError {
  return new ImageError(
    'invalid-layer',
    `the PAX header at byte ${at} is not valid: ${why}; the layer is damaged`,
  );
}
