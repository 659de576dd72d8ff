/** A guest that reboots is the same sandbox again: its disk, identity, start command and policy; one that powers off has ended. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { bootIdFile, rebootProgram, untilRebooted } from '../driver/reboots.js';
import { TestNode } from '../driver/test-node.js';

vi.setConfig({ testTimeout: 120_000 });

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('by the system call, by sysrq and by a signal to process 1', async () => {
  const sandbox = await node.create({
    hostname: 'first',
    env: { GIVEN: 'at create' },
    startCommand: { argv: ['/bin/sh', '-c', 'echo "started $GIVEN"; echo run >> /root/runs; sleep 7776'] },
  });
  await sandbox.out('echo kept > /root/kept; echo own > /etc/hostname; echo 1.2.3.4 mine >> /etc/hosts');
  const machineId = await sandbox.out('cat /etc/machine-id');
  const { pid } = await sandbox.report();
  const ways = [
    ['python3', '-c', rebootProgram],
    ['/bin/sh', '-c', 'sync; echo b > /proc/sysrq-trigger'],
    ['/bin/sh', '-c', 'sync; kill -TERM 1; sleep 60'],
  ];
  for (const [round, argv] of ways.entries()) {
    const bootId = await sandbox.out(`cat ${bootIdFile}`);
    await expect(sandbox.run(argv)).rejects.toThrow(/reboot/i);
    expect((await sandbox.report()).state).toBe('running');
    await untilRebooted(sandbox, bootId);
    expect(await sandbox.out('cat /root/kept /etc/machine-id /etc/hostname; hostname')).toBe(
      `kept\n${machineId}\nown\nown`,
    );
    expect(await sandbox.out('grep mine /etc/hosts; echo $GIVEN $HOSTNAME')).toBe(
      '1.2.3.4 mine\nat create own',
    );
    expect(Math.abs(Number(await sandbox.out('date +%s')) - Date.now() / 1000)).toBeLessThan(3);
    await sandbox.until(
      'the start command runs again',
      async () => (await sandbox.out('wc -l < /root/runs')) === String(round + 2),
    );
    expect(await sandbox.logs()).toContain('started at create');
  }
  expect((await sandbox.report()).pid).not.toBe(pid);
  expect((await sandbox.delete()).state).toBe('stopped');
});

it('also when the node agent is killed meanwhile', async () => {
  const sandbox = await node.create();
  const bootId = await sandbox.out(`echo kept > /root/kept; cat ${bootIdFile}`);
  await sandbox.out(`setsid python3 -c 'import time; time.sleep(1); ${rebootProgram}' >/dev/null 2>&1 &`);
  await pause(1_000);
  await node.killAgent();
  await pause(1_000);
  await node.startAgent();
  await untilRebooted(sandbox, bootId);
  expect(await sandbox.out('cat /root/kept')).toBe('kept');
  await sandbox.delete();
});

it('and a power off ends it', async () => {
  const sandbox = await node.create();
  await sandbox.sh('echo o > /proc/sysrq-trigger; sleep 30').catch(() => undefined);
  expect(await sandbox.untilState('stopped')).toMatchObject({ reason: 'GUEST_SHUTDOWN' });
  await sandbox.delete();
});
