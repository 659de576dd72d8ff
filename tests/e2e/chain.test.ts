/** Layers of a disk that is saved again and again are merged while its machine runs, whenever anything dies; nothing is lost. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { ChainStory, cap, killInMerges, mergedFrom } from '../driver/chain-story.js';
import { machinesOf, pauseSandbox, resumeSandbox } from '../driver/pauses.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

vi.setConfig({ testTimeout: 300_000 });

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('saves one after the other: the disk stays on few layers, and the guest writes on', async () => {
  const story = await ChainStory.begin(node);
  await story.beginPulse();
  for (let turn = 0; turn < 24; turn++) {
    await story.write(512);
    await story.save();
    expect(await story.depth()).toBeLessThanOrEqual(cap);
  }
  await story.untilMerged();
  process.stderr.write(`longest pulse over 24 saves and their merges: ${await story.longestPulseMs()} ms\n`);
  const use = await story.use();
  // Of what was saved only the disks are kept, and they are its own.
  expect(use?.ownBytes).toBe(story.layerBytes());
  expect(use?.sharedBytes).toBe(0);
  await story.expectNothingHeld();
  await story.verifyEverywhere();
  const { sandbox } = story;
  await sandbox.delete();
  expect(story.folders()).toEqual([]);
});

it('checkpoints turn after turn: each is restored as it was, whatever was merged since', async () => {
  const story = await ChainStory.begin(node);
  for (let turn = 0; turn < 12; turn++) {
    await story.write(64);
    await story.checkpoint();
    expect(await story.depth()).toBeLessThanOrEqual(cap);
  }
  await story.untilMerged();
  await story.verify();
  for (const turn of [3, 12]) await story.verifyCheckpoint(turn);
  await story.rollBack(9);
  await story.write(64);
  await story.checkpoint();
  await story.verifyEverywhere();
  await story.verifyCheckpoint(3);
  await story.end();
});

it('a pause, a fork and a delete in a merge: none is refused, and none waits for it', async () => {
  const story = await ChainStory.begin(node);
  const { sandbox } = story;
  for (let turn = 0; turn < mergedFrom; turn++) {
    await story.write(24 * 1024);
    await story.save();
  }
  // The merge of some 200 MiB is under way for three seconds from now on.
  expect(await story.depth()).toBe(mergedFrom);
  const [copy] = await node.requestFork(sandbox, 1);
  await pauseSandbox(node, sandbox);
  await sandbox.until(
    'it is merged while it is paused',
    async () => (await story.depth()) < mergedFrom,
    120_000,
    250,
  );
  await copy?.untilState('running');
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  await story.verify();
  await story.verify(copy);
  await copy?.delete();
  while ((await story.depth()) < mergedFrom) {
    await story.write(8 * 1024);
    await story.save();
  }
  await sandbox.delete();
  await sandbox.until('nothing is left', async () => story.folders().length === 0);
});

it('kill -9 of the node agent in a merge, at any moment: it begins again, and nothing is lost', async () => {
  await killInMerges(node, 2, new SeededRandom(8));
});

it('kill -9 of QEMU in a merge: the sandbox has ended, and nothing is left', async () => {
  const story = await ChainStory.begin(node);
  for (let turn = 0; turn < mergedFrom; turn++) {
    await story.write(8 * 1024);
    await story.save();
  }
  const { pid } = await story.sandbox.report();
  process.kill(pid as number, 'SIGKILL');
  await story.sandbox.untilState('failed');
  await story.sandbox.until('nothing is left', async () => story.folders().length === 0);
  expect(machinesOf(node)).toEqual([]);
  await story.sandbox.delete();
});
