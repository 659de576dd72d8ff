/** The channel's stories in full; part of `make test-long-faults`. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { killInTransfers } from '../driver/channel-story.js';
import { SeededRandom, seedOfRun } from '../driver/seeded-random.js';
import { snapshotInTransfers } from '../driver/snapshot-story.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('survives 200 kills in transfers without a foreign byte', async () => {
  const random = new SeededRandom(seedOfRun('200 kills'));
  const cut = await killInTransfers(node, await node.create(), 200, random);
  expect(cut).toBeGreaterThan(150);
}, 2_400_000);

it('restores 20 machines saved in transfers, 3 times each, without a foreign byte', async () => {
  const skipped = await snapshotInTransfers(20, new SeededRandom(seedOfRun('60 restores')));
  expect(skipped).toBeGreaterThan(0);
}, 900_000);
