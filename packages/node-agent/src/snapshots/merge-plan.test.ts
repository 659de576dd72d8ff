/** Chains stay short, and what is copied for that stays in proportion. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { chainLimits, mergeableLayers, planMerge, withMerged } from './merge-plan.js';

/** Saves one after the other; each merge is done before the next save. */
function play(writes: readonly number[]): { deepest: number; written: number; copied: number } {
  let sizes: number[] = [];
  const played = { deepest: 0, written: 0, copied: 0 };
  for (const bytes of writes) {
    sizes.push(bytes);
    played.written += bytes;
    if (sizes.length >= chainLimits.mergeAt) {
      const from = planMerge(sizes);
      const total = sizes.slice(from).reduce((sum, size) => sum + size, 0);
      played.copied += total;
      sizes = [...sizes.slice(0, from), total];
    }
    played.deepest = Math.max(played.deepest, sizes.length);
  }
  return played;
}

it('stays short for ever, and copies each byte a few times', () => {
  for (const count of [200, 10_000]) {
    const { deepest, written, copied } = play(Array(count).fill(1));
    expect(deepest).toBeLessThan(chainLimits.mergeAt);
    expect(copied / written).toBeLessThan(Math.log2(count));
  }
});

it('whatever is written between saves, it stays short', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 2 ** 40 }), { maxLength: 300 }), (writes) => {
      expect(play(writes).deepest).toBeLessThan(chainLimits.mergeAt);
    }),
  );
});

it('leaves a large base alone', () => {
  expect(planMerge([1000, ...Array(7).fill(1)])).toBe(1);
  expect(planMerge([64, 32, 16, 8, 4, 2, 1, 1])).toBe(0);
  expect(planMerge([3 ** 7, 3 ** 6, 3 ** 5, 3 ** 4, 100, 9, 3, 1])).toBe(5);
});

it('what lies below others too is merged first, for all of them', () => {
  const own = ['a', 'b', 'c', 'd', 'e'];
  expect(mergeableLayers(own, [])).toBe(5);
  expect(mergeableLayers(own, [['a', 'b', 'c', 'x']])).toBe(3);
  expect(mergeableLayers(own, [['a', 'b', 'x']])).toBe(5);
  expect(
    mergeableLayers(own, [
      ['a', 'b'],
      [...own, 'f'],
    ]),
  ).toBe(5);
});

it('replaces what lies one above the other, and nothing else', () => {
  expect(withMerged(['a', 'b', 'c', 'd'], ['b', 'c'], 'm')).toEqual(['a', 'm', 'd']);
  expect(withMerged(['a', 'b'], ['a', 'b'], 'm')).toEqual(['m']);
  expect(withMerged(['a', 'b', 'c'], ['a', 'c'], 'm')).toBeUndefined();
  expect(withMerged(['a', 'b'], ['b', 'c'], 'm')).toBeUndefined();
  expect(withMerged([], ['b'], 'm')).toBeUndefined();
});
