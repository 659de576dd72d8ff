/** Checksums find what has changed, read nothing twice without need, and do not mind holes. */
import { openSync, readFileSync, truncateSync, utimesSync, writeFileSync, writeSync } from 'node:fs';
import { mkdtemp, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Checksums, DamagedFileError } from './checksums.js';

const never = new AbortController().signal;
const mib = 2 ** 20;
let folder: string;
let memory: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sandlot-sums-'));
  memory = join(folder, 'memory');
  writeFileSync(memory, '');
  truncateSync(memory, 64 * mib);
  write(memory, 'first', 3 * mib - 2);
  write(memory, 'last', 64 * mib - 4);
  writeFileSync(join(folder, 'state'), 'devices');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

function write(path: string, text: string, at: number): void {
  const file = openSync(path, 'r+');
  writeSync(file, text, at);
}

const verify = (sums = new Checksums()) => sums.verify(folder, 'memory', never);

it('accepts what was saved, also where holes have become zeroes', async () => {
  await new Checksums().settle(folder, never);
  await verify();
  const content = readFileSync(memory);
  writeFileSync(memory, content);
  await verify();
});

it.each([
  ['a changed byte', () => write(memory, 'X', 3 * mib)],
  ['one in a hole', () => write(memory, 'X', 40 * mib)],
  ['one made zero', () => write(memory, '\0', 64 * mib - 1)],
  ['a shorter file', () => truncateSync(memory, 63 * mib)],
  ['another place', () => write(memory, 'first', 3 * mib + 8)],
  ['another file of it', () => writeFileSync(join(folder, 'state'), 'device2')],
])('finds %s, each time', async (_, damage) => {
  const sums = new Checksums();
  await sums.settle(folder, never);
  await verify(sums);
  damage();
  for (let round = 0; round < 2; round++) await expect(verify(sums)).rejects.toThrow(DamagedFileError);
  await expect(verify()).rejects.toThrow(/damaged/);
});

it('does not read what nobody has written to since', async () => {
  const sums = new Checksums();
  await sums.settle(folder, never);
  const then = new Date(1_700_000_000_000);
  await utimes(memory, then, then);
  await verify(sums);
  // Only a broken disk changes content and says nothing.
  write(memory, 'X', 5);
  utimesSync(memory, then, then);
  await verify(sums);
  await expect(verify()).rejects.toThrow(DamagedFileError);
});

it('what has no checksums is not what was saved', async () => {
  await expect(verify()).rejects.toThrow(/checksum is missing/);
  await new Checksums().settle(folder, never);
  await rm(join(folder, 'state'));
  await expect(verify()).rejects.toThrow(/it is missing/);
});
