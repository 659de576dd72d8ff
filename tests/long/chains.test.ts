/**
 * 200 saves of one sandbox one after the other: the last costs what the tenth does, its disk stays on few layers, and nothing is
 * lost; and the node agent killed in merges. Part of `make test-long-faults`.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ChainStory, cap, killInMerges, median } from '../driver/chain-story.js';
import { SeededRandom, seedOfRun } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

const saves = 200;
const kibEachTurn = 256;
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
  let deepest = 0;
  const turn = async (): Promise<number> => {
    await story.write(kibEachTurn);
    const tookMs = await story.save();
    deepest = Math.max(deepest, await story.depth());
    return tookMs;
  };
  while (story.turns < saves - 15) {
    await turn();
    if (story.turns % 50 === 0) await story.verify();
  }
  // A young one beside it: the host is not the same in two different minutes.
  const young = await ChainStory.begin(node);
  await young.beginPulse();
  const tookMs = { young: [] as number[], old: [] as number[] };
  while (story.turns < saves) {
    tookMs.old.push(await turn());
    await young.write(kibEachTurn);
    tookMs.young.push(await young.save());
  }
  const tenth = median(tookMs.young.slice(5));
  const last = median(tookMs.old.slice(5));
  const ratio = last / tenth;
  process.stderr.write(
    `saves 6 to 15: ${tenth.toFixed(0)} ms, ${saves - 9} to ${saves}: ${last.toFixed(0)} ms, ratio ${ratio.toFixed(2)}; ` +
      `deepest ${deepest} layers, longest write of the guest ${await story.longestPulseMs()} ms\n`,
  );
  expect(deepest).toBeLessThanOrEqual(cap);
  expect(ratio).toBeLessThan(mostRatio);
  await young.sandbox.delete();
  await story.untilMerged();
  await story.expectNothingHeld();
  await story.verifyEverywhere();
  await story.sandbox.delete();
  expect(story.folders()).toEqual([]);
}, 1_800_000);

it('kill -9 of the node agent in merges', async () => {
  await killInMerges(node, 12, new SeededRandom(seedOfRun('merges')));
}, 1_800_000);
