/**
 * Sparse maps of tar archives: the old GNU form (type `S`) and the PAX forms 0.0, 0.1 and 1.0, as in the GNU tar
 * manual, "Storing Sparse Files". The reader calls these; a map is checked before anything uses it.
 */
import { ImageError } from '../store.js';
import type { PaxRecords } from './pax.js';
import { parsePaxNumber } from './pax.js';
import type { SparseSegments } from './tar-entry.js';
import { readNumber } from './tar-header.js';

/** What the PAX records say about a sparse file. */
export interface PaxSparse {
  realSize: number;
  /** Undefined in form 1.0, whose map stands before the data. */
  numbers: number[] | undefined;
  name: string | undefined;
}

/** Reads `GNU.sparse.*`; undefined if the file is not sparse. */
export function paxSparseOf(records: PaxRecords, at: number, maxSegments: number): PaxSparse | undefined {
  let realSize: number | undefined;
  let name: string | undefined;
  let map: string | undefined;
  let isVersion1 = false;
  const numbers: number[] = [];
  for (const [key, value] of records) {
    if (key === 'GNU.sparse.major') isVersion1 = value === '1';
    else if (key === 'GNU.sparse.realsize' || key === 'GNU.sparse.size') realSize = parsePaxNumber(value, at);
    else if (key === 'GNU.sparse.name') name = value;
    else if (key === 'GNU.sparse.map') map = value;
    else if (key === 'GNU.sparse.offset' || key === 'GNU.sparse.numbytes') {
      const isOffset = key === 'GNU.sparse.offset';
      if ((numbers.length % 2 === 0) !== isOffset)
        throw badSparse(at, 'offsets and lengths do not alternate');
      numbers.push(parsePaxNumber(value, at));
    }
    if (numbers.length > 2 * maxSegments) throw badSparse(at, 'it has too many segments');
  }
  if (realSize === undefined) return undefined;
  if (isVersion1) return { realSize, numbers: undefined, name };
  if (map !== undefined) {
    const parts = map === '' ? [] : map.split(',', 2 * maxSegments + 1);
    if (parts.length > 2 * maxSegments) throw badSparse(at, 'it has too many segments');
    return { realSize, numbers: parts.map((part) => parsePaxNumber(part, at)), name };
  }
  return { realSize, numbers, name };
}

/** Adds the offset and length pairs of an old GNU header or extension block; stops at the first empty pair. */
export function readOldGnuPairs(
  block: Buffer,
  start: number,
  count: number,
  numbers: number[],
  at: number,
): void {
  for (let i = 0; i < count; i++) {
    const pair = start + i * 24;
    if (block[pair] === 0) return;
    numbers.push(readNumber(block, pair, 12, at), readNumber(block, pair + 12, 12, at));
  }
}

/** Checks that segments are in order, inside the file, and add up to the stored bytes. */
export function checkSegments(
  numbers: number[],
  realSize: number,
  storedSize: number,
  at: number,
): SparseSegments {
  let end = 0;
  let total = 0;
  if (numbers.length % 2 !== 0) throw badSparse(at, 'an offset has no length');
  for (let i = 0; i < numbers.length; i += 2) {
    if (numbers[i]! < end) throw badSparse(at, 'segments overlap or are out of order');
    end = numbers[i]! + numbers[i + 1]!;
    total += numbers[i + 1]!;
  }
  if (end > realSize) throw badSparse(at, 'a segment ends behind the end of the file');
  if (total !== storedSize) throw badSparse(at, 'the segments do not add up to the stored bytes');
  return Float64Array.from(numbers);
}

/** The error for a map that contradicts itself. */
export function badSparse(at: number, why: string): ImageError {
  return new ImageError(
    'invalid-layer',
    `the sparse file at byte ${at} has a bad map: ${why}; the layer is damaged`,
  );
}
