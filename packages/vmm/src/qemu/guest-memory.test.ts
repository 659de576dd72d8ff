/** Which pages of a machine's memory are its own: judged by entries of a pagemap, and found in a list of mappings. */
import { expect, it } from 'vitest';
import { findMapping, privateRuns } from './guest-memory.js';

/** Upper halves of entries: in memory and anonymous; in swap; a file's, in memory; never touched. */
const pages = { own: 0x8000_0000, swapped: 0x4000_0000, ofFile: 0xa000_0000, untouched: 0 };

it('takes what was written to, also when it was swapped out, and leaves what is the file’s', () => {
  const map = (...kinds: (keyof typeof pages)[]) => [
    ...privateRuns(Uint32Array.from(kinds.flatMap((kind) => [0, pages[kind]]))),
  ];
  expect(map('untouched', 'ofFile')).toEqual([]);
  expect(map('own', 'swapped', 'ofFile', 'own')).toEqual([
    [0, 2],
    [3, 1],
  ]);
  expect(map('own', 'own', 'own')).toEqual([[0, 3]]);
});

it('finds the private mapping of the memory by its inode and size', () => {
  const maps = [
    '7f0000000000-7f0010000000 rw-p 00000000 fd:00 12 /t/memory',
    '7f1000000000-7f1000001000 r--s 00000000 fd:00 12 /t/memory',
    '7f2000000000-7f2000200000 rw-p 00000000 fd:00 13                         /u/memory (deleted)',
  ].join('\n');
  expect(findMapping(maps, 12, 0x1000_0000)).toEqual({ start: 0x7f00_0000_0000, bytes: 0x1000_0000 });
  expect(findMapping(maps, 13, 0x20_0000)).toEqual({ start: 0x7f20_0000_0000, bytes: 0x20_0000 });
  expect(findMapping(maps, 12, 4096)).toBeUndefined();
  expect(findMapping(maps, 14, 4096)).toBeUndefined();
});
