/**
 * 200 saves of one sandbox one after the other, for forks and as checkpoints: the last costs what the tenth does, its disk stays on few layers, and nothing is
 * lost; and the node agent killed in merges. Part of `make test-long-faults`.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ChainStory, cap, killInMerges, median } from '../driver/chain-story.js';
import { removeCheckpoint } from '../driver/checkpoints.js';
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

const kinds = {
  'save for a fork': (story: ChainStory) => story.save(),
  'checkpoint, all of which stay': (story: ChainStory) => story.checkpoint(),
};

it.each(Object.entries(kinds))(
  'the 200th %s, costs what the tenth does, and all that was written is there',
  async (kind, save) => {
    const story = await ChainStory.begin(node);
    await story.beginPulse();
    let deepest = 0;
    const turn = async (): Promise<number> => {
      await story.write(kibEachTurn);
      const tookMs = await save(story);
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
      tookMs.young.push(await save(young));
    }
    const tenth = median(tookMs.young.slice(5));
    const last = median(tookMs.old.slice(5));
    const ratio = last / tenth;
    process.stderr.write(
      `${kind}: 6 to 15 ${tenth.toFixed(0)} ms, ${saves - 9} to ${saves} ${last.toFixed(0)} ms, ratio ${ratio.toFixed(2)}; ` +
        `deepest ${deepest} layers, longest write of the guest ${await story.longestPulseMs()} ms, ` +
        `${(story.layerBytes() / 2 ** 20).toFixed(0)} MiB of layers\n`,
    );
    await young.sandbox.delete();
    for (const id of young.checkpoints.values()) await removeCheckpoint(node, id);
    await story.untilMerged();
    await story.expectNothingHeld();
    await story.verifyEverywhere();
    for (const old of [10, 190]) if (story.checkpoints.has(old)) await story.verifyCheckpoint(old);
    await story.end();
    expect(deepest).toBeLessThanOrEqual(cap);
    expect(ratio).toBeLessThan(mostRatio);
  },
  1_800_000,
);

it('kill -9 of the node agent in merges', async () => {
  await killInMerges(node, 8, new SeededRandom(seedOfRun('merges')));
}, 1_800_000);
