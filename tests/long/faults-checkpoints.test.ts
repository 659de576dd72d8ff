/** Bad days of checkpoints: a full disk while one is saved, a guest that cannot hold still, another QEMU, an end in the middle. */
import { readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeCheckpoint } from '@sandlot/protocol';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import {
  createFrom,
  makeCheckpoint,
  removeCheckpoint,
  rollBack,
  saveCheckpoint,
} from '../driver/checkpoints.js';
import { machinesOf, snapshotsOf } from '../driver/pauses.js';
import { TestNode } from '../driver/test-node.js';

vi.setConfig({ testTimeout: 240_000 });

const tokensFrom = 1;
let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start({ dataMiB: 1500 });
});
afterAll(() => node?.close());

const checkpoints = async () =>
  (await node.ask<{ checkpoints: NodeCheckpoint[] }>('GET', '/v1/checkpoints')).checkpoints;

/** Leaves so many KiB free while `body` runs. */
async function withFree(kibibytes: number, body: () => Promise<void>): Promise<void> {
  const ballast = join(node.dataFolder, 'ballast');
  const { bavail, bsize } = statfsSync(node.dataFolder);
  writeFileSync(ballast, Buffer.alloc(bavail * bsize - kibibytes * 1024, 'b'));
  try {
    await body();
  } finally {
    rmSync(ballast);
  }
}

it('a disk that is full: the sandbox runs on, there is no checkpoint, and nothing is left of one', async () => {
  const sandbox = await node.create({ tokensFrom });
  await sandbox.out('echo one > /root/s; echo one > /dev/shm/s; sync');
  for (const [memory, kibibytes] of [
    // Enough to begin.
    [true, 66 * 1024],
    [true, 4_096],
    [false, 4_096],
    [false, 0],
  ] as const) {
    await withFree(kibibytes, async () => {
      await expect(saveCheckpoint(node, sandbox, memory)).rejects.toThrow(/507/);
    });
    expect([memory, kibibytes, await checkpoints()]).toEqual([memory, kibibytes, []]);
    expect(
      await sandbox.out('cat /root/s /dev/shm/s; echo more >> /root/more; sync; wc -l < /root/more'),
    ).toMatch(/^one\none\n\d+$/);
  }
  const { id } = await makeCheckpoint(node, sandbox, true);
  await rollBack(node, sandbox, id, true);
  expect(await sandbox.out('wc -l < /root/more')).toBe('4');
  await removeCheckpoint(node, id);
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('a guest that writes too much to hold still in time is saved as it is, and says so; it is not left frozen', async () => {
  const sandbox = await node.create({ tokensFrom });
  // More than reaches its disk in a second, and it goes on.
  await sandbox.out(
    '(while :; do dd if=/dev/zero of=/root/much bs=1M count=200 conv=notrunc 2>/dev/null; done) >/dev/null 2>&1 & echo $! > /tmp/writer; sleep 2',
  );
  const saved = await saveCheckpoint(node, sandbox, false);
  if (saved.consistency === 'crash') expect(saved.note).toMatch(/was not frozen within 1000 ms/);
  else expect(saved.note).toBeUndefined();
  await sandbox.out('kill $(cat /tmp/writer)');
  await sandbox.until(
    'it writes',
    async () => (await sandbox.out('echo w > /root/w; sync; cat /root/w')) === 'w',
    30_000,
  );
  await node.ask('POST', `/v1/checkpoints/${saved.id}/settle`);
  const child = await createFrom(node, saved.id, false);
  expect(await child.out('ls /root')).toContain('much');
  await removeCheckpoint(node, saved.id);
  await Promise.all([sandbox.delete(), child.delete()]);
  expect(snapshotsOf(node)).toEqual([]);
});

it('memory of another QEMU or processor is refused with the reason, and its disk restored', async () => {
  const sandbox = await node.create({ tokensFrom });
  await sandbox.out('echo one > /root/s');
  const { id } = await makeCheckpoint(node, sandbox, true);
  await node.killAgent();
  const file = join(node.dataFolder, 'checkpoints', `${id}.json`);
  const record = JSON.parse(readFileSync(file, 'utf8'));
  record.made = { ...record.made, fingerprint: 'another', by: 'QEMU 9.9.9 with kvm' };
  writeFileSync(file, JSON.stringify(record));
  await node.startAgent();
  const why = /409.*made by QEMU 9\.9\.9 with kvm, and here is QEMU .* with tcg.*disk alone can be restored/;
  await expect(node.request({ checkpoint: { id, memory: true } })).rejects.toThrow(why);
  await expect(rollBack(node, sandbox, id, true)).rejects.toThrow(why);
  await expect(node.ask('POST', `/v1/checkpoints/${id}/check?memory=1`)).rejects.toThrow(why);
  expect((await sandbox.report()).state).toBe('running');
  const child = await createFrom(node, id, false);
  expect(await child.out('cat /root/s')).toBe('one');
  await rollBack(node, sandbox, id, false);
  expect(await sandbox.out('cat /root/s')).toBe('one');
  await removeCheckpoint(node, id);
  await Promise.all([sandbox.delete(), child.delete()]);
  expect(snapshotsOf(node)).toEqual([]);
});

it('a delete in the middle wins, and QEMU that is killed in it leaves nothing', async () => {
  for (const work of ['checkpoint', 'rollback'] as const)
    for (const end of ['delete', 'kill'] as const)
      for (const delayMs of [20, 120]) {
        expect([work, end, delayMs, machinesOf(node)]).toEqual([work, end, delayMs, []]);
        const sandbox = await node.create({ tokensFrom });
        const { id } = await makeCheckpoint(node, sandbox, true);
        const working = (
          work === 'checkpoint' ? saveCheckpoint(node, sandbox, true) : rollBack(node, sandbox, id, true)
        ).catch(() => undefined);
        await pause(delayMs);
        if (end === 'kill') for (const pid of machinesOf(node)) process.kill(pid, 'SIGKILL');
        if (end === 'kill' && work === 'checkpoint') await sandbox.untilState('failed');
        await working;
        if (end === 'kill' && work === 'rollback') await sandbox.untilState('running', 'failed');
        await sandbox.delete();
        expect(machinesOf(node)).toEqual([]);
        for (const one of await checkpoints()) await removeCheckpoint(node, one.id);
        expect([work, end, delayMs, snapshotsOf(node)]).toEqual([work, end, delayMs, []]);
      }
});
