/** The channel to a guest after its host side died in mid-transfer: no byte of one connection reaches another. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { killInTransfers } from '../driver/channel-story.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('survives 10 kills in transfers without a foreign byte', async () => {
  const cut = await killInTransfers(node, await node.create(), 10, new SeededRandom(21));
  expect(cut).toBeGreaterThan(6);
}, 180_000);
