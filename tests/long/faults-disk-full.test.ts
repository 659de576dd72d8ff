/** A disk that is full while a running sandbox is saved for a pause or for copies: it runs on, the answer says why, and nothing is left. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { freeBytes, withFree } from '../driver/full-disk.js';
import { counting, countOf, machinesOf, pauseSandbox, resumeSandbox, snapshotsOf } from '../driver/pauses.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

vi.setConfig({ testTimeout: 240_000 });

const mib = 2 ** 20;
let node: TestNode;

beforeAll(async () => {
  // Not in memory: there a hole of a file that is mapped takes room when it is read, and the machine dies of it.
  node = await TestNode.start({ dataMiB: 1500, dataOn: 'ext4' });
});
afterAll(() => node?.close());

it('from a disk that is full at once to one that lacks the last piece; with room again it works', async () => {
  const source = await node.create({ memoryMiB: 256, tokensFrom: 1 });
  await source.out('echo d > /root/d; echo m > /dev/shm/m');
  await source.out(counting);
  const begun = freeBytes(node);
  await pauseSandbox(node, source);
  const neededMiB = (begun - freeBytes(node)) / mib;
  await resumeSandbox(node, source);
  await source.untilState('running');
  const saves = { pause: () => pauseSandbox(node, source), fork: () => node.requestFork(source, 1) };
  for (const part of [0.02, 0.5, 0.85, 0.97]) {
    const room = Math.max(1, Math.floor(neededMiB * part));
    for (const [what, save] of Object.entries(saves)) {
      const before = await countOf(source);
      await withFree(node, room, async () => {
        await expect(save(), `${what} with ${room} MiB`).rejects.toThrow(/507.*(no-space|No space)/s);
        expect((await source.report()).state).toBe('running');
        expect(snapshotsOf(node)).toHaveLength(1);
      });
      await source.until('it counts on', async () => (await countOf(source)) > before);
      expect(await node.reports()).toHaveLength(1);
      expect(machinesOf(node)).toHaveLength(1);
    }
  }
  const [copy] = (await node.requestFork(source, 1)) as [TestSandbox];
  expect((await copy.untilState('running', 'failed')).state).toBe('running');
  for (const one of [source, copy]) {
    expect(await one.out('cat /root/d /dev/shm/m')).toBe('d\nm');
    await one.delete();
  }
  expect(snapshotsOf(node)).toEqual([]);
});

it('while a paused one comes back: it is paused still, or runs', async () => {
  const sandbox = await node.create({ memoryMiB: 256, tokensFrom: 1 });
  await sandbox.out('echo m > /dev/shm/m');
  await pauseSandbox(node, sandbox);
  await withFree(node, 0, async () => {
    await resumeSandbox(node, sandbox);
    const { state } = await sandbox.untilState('running', 'paused', 'failed', 'stopped');
    expect(['running', 'paused']).toContain(state);
  });
  if ((await sandbox.report()).state === 'paused') await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  expect(await sandbox.out('cat /dev/shm/m')).toBe('m');
  await sandbox.delete();
});
