/** A machine that was saved in mid-transfer and restored: no byte of the old connection reaches the new one. */
import { expect, it } from 'vitest';
import { SeededRandom } from '../driver/seeded-random.js';
import { snapshotInTransfers } from '../driver/snapshot-story.js';

it('restores 2 machines saved in transfers, 3 times each, without a foreign byte', async () => {
  const skipped = await snapshotInTransfers(2, new SeededRandom(41));
  // Without stale bytes to skip this would prove nothing.
  expect(skipped).toBeGreaterThan(0);
}, 180_000);
