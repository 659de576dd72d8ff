/** The channel's story in full; part of `make test-long`. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { killInTransfers } from '../driver/channel-story.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('survives 200 kills in transfers without a foreign byte', async () => {
  const cut = await killInTransfers(node, await node.create(), 200, new SeededRandom(22));
  expect(cut).toBeGreaterThan(150);
}, 2_400_000);
