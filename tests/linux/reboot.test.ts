/** Reboots at bad moments, and one after the other. What a reboot keeps is in tests/e2e/reboot.test.ts. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { bootIdFile, rebootProgram, untilRebooted } from '../driver/reboots.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

vi.setConfig({ testTimeout: 400_000 });

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('while the node agent is killed, at any moment', async () => {
  const sandbox = await node.create();
  await sandbox.out('echo kept > /root/kept; sync');
  const random = new SeededRandom(31);
  for (let round = 0; round < 8; round++) {
    const bootId = await sandbox.out(`cat ${bootIdFile}`);
    await sandbox.out(`setsid python3 -c 'import time; time.sleep(1); ${rebootProgram}' >/dev/null 2>&1 &`);
    await pause(random.between(700, 2_500));
    await node.killAgent();
    await pause(300);
    await node.startAgent();
    await untilRebooted(sandbox, bootId);
    expect(await sandbox.out('cat /root/kept')).toBe('kept');
  }
  await sandbox.delete();
});

it('is ended when it does nothing else', async () => {
  const sandbox = await node.create({
    startCommand: { argv: ['python3', '-c', rebootProgram] },
  });
  const report = await sandbox.untilState('failed');
  expect(report).toMatchObject({ reason: 'REBOOT_LOOP' });
  await sandbox.delete();
});
