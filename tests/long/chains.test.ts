/**
 * 200 saves of one sandbox one after the other: the last costs what the tenth does, its disk stays on few layers, and nothing is
 * lost; and the node agent killed in merges. Part of `make test-long-faults`.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ChainStory, deepest, killInMerges, median } from '../driver/chain-story.js';
import { SeededRandom, seedOfRun } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

const saves = 200;
/** What the last may cost more than the tenth. */
const mostRatio = 1.3;

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('the 200th save costs what the tenth does, and all that was written is there', async () => {
  const story = await ChainStory.begin(node);
  await story.beginPulse();
  const tookMs: number[] = [];
  let depth = 0;
  for (let turn = 1; turn <= saves; turn++) {
    await story.write(256);
    tookMs.push(await story.save());
    depth = Math.max(depth, await story.depth());
    if (turn % 50 === 0) await story.verify();
  }
  const tenth = median(tookMs.slice(4, 15));
  const last = median(tookMs.slice(189, 200));
  const ratio = last / tenth;
  process.stderr.write(
    `saves 5 to 15: ${tenth.toFixed(0)} ms, 190 to 200: ${last.toFixed(0)} ms, ratio ${ratio.toFixed(2)}; ` +
      `deepest ${depth} layers, longest write of the guest ${await story.longestPulseMs()} ms\n`,
  );
  expect(depth).toBeLessThanOrEqual(deepest);
  expect(ratio).toBeLessThan(mostRatio);
  await story.untilMerged();
  await story.expectNothingHeld();
  await story.verifyEverywhere();
  await story.sandbox.delete();
  expect(story.folders()).toEqual([]);
}, 1_800_000);

it('kill -9 of the node agent in merges', async () => {
  await killInMerges(node, 12, new SeededRandom(seedOfRun('merges')));
}, 1_800_000);
