/** kill -9 of the node agent at seeded moments of create, exec and delete: nothing running is lost, nothing is left. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { namespacesOf, processesWith } from '../driver/leftovers.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

// Each round waits for a restart and a start.
vi.setConfig({ testTimeout: 150_000 });

let node: TestNode;
let anchor: TestSandbox;

beforeAll(async () => {
  node = await TestNode.start();
  anchor = await node.create();
  await anchor.out('echo kept > /root/kept');
});
afterAll(() => node?.close());

async function crashAfter(ms: number): Promise<void> {
  await pause(ms);
  await node.killAgent();
  await node.startAgent();
}

async function expectOnlyTheAnchor(): Promise<void> {
  expect(await anchor.out('cat /root/kept')).toBe('kept');
  const machines = processesWith(`${node.folder}/node`).filter(({ commandLine }) =>
    commandLine.includes('qemu'),
  );
  expect(machines.map(({ pid }) => pid)).toEqual([(await anchor.report()).pid]);
  // One is the anchor's, the rest are the pool's.
  expect(namespacesOf(node.instanceId).length).toBeLessThanOrEqual(1 + 2 + 1);
}

it('in a create: it is finished or was never heard of', async () => {
  const random = new SeededRandom(11);
  for (let round = 0; round < 5; round++) {
    const requested = node.request().catch(() => undefined);
    await crashAfter(random.between(0, 700));
    const sandbox = await requested;
    if (sandbox && (await node.report(sandbox.id))) {
      expect((await sandbox.untilState('running', 'failed')).state).toBe('running');
      expect(await sandbox.out('echo ready')).toBe('ready');
      await sandbox.delete();
    }
    await expectOnlyTheAnchor();
  }
});

it('in an exec: the command’s tree ends with its stream, and the next command works', async () => {
  const random = new SeededRandom(12);
  for (let round = 0; round < 3; round++) {
    const running = anchor.run(['sleep', '8881']);
    running.catch(() => undefined);
    await crashAfter(random.between(0, 600));
    await expect(running).rejects.toThrow();
    await anchor.until('the tree has ended', async () => (await anchor.processesWith('8881')) === 0);
  }
  await expectOnlyTheAnchor();
});

it('in a delete: asked again, it is done', async () => {
  const random = new SeededRandom(13);
  for (let round = 0; round < 3; round++) {
    const sandbox = await node.create();
    const deleting = sandbox.delete();
    deleting.catch(() => undefined);
    await crashAfter(random.between(0, 150));
    await sandbox.delete();
    await expectOnlyTheAnchor();
  }
});

it('and a machine that dies meanwhile is reported with its reason', async () => {
  const sandbox = await node.create();
  const { pid } = await sandbox.report();
  await node.killAgent();
  process.kill(pid as number, 'SIGKILL');
  await node.startAgent();
  expect(await sandbox.untilState('failed')).toMatchObject({ reason: 'MACHINE_ENDED' });
  await sandbox.delete();
  await expectOnlyTheAnchor();
});
