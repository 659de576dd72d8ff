/** Checkpoints of a running sandbox: disk alone or memory too; new sandboxes from them, the same one back at them, and what stays when. */
import { openSync, readdirSync, writeSync } from 'node:fs';
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
import { counting, countOf, machinesOf, pauseSandbox, resumeSandbox, snapshotsOf } from '../driver/pauses.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

vi.setConfig({ testTimeout: 240_000 });

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

const tokensFrom = 1;

it('a disk: the guest agrees to hold still, a sandbox from it has the files and nothing of the processes', async () => {
  const source = await node.create({ tokensFrom });
  await source.out('echo one > /root/s; echo one > /dev/shm/s');
  const saved = await saveCheckpoint(node, source, false);
  expect(saved).toMatchObject({ memory: false, consistency: 'application', durable: false });
  expect(saved.note).toBeUndefined();
  await source.out('echo two > /root/s; sync');
  const durable = await node.ask<NodeCheckpoint>('POST', `/v1/checkpoints/${saved.id}/settle`);
  expect(durable).toMatchObject({ durable: true, ownBytes: 0 });
  expect(durable.sharedBytes).toBeGreaterThan(0);
  const child = await createFrom(node, saved.id, false);
  expect(await child.out('cat /root/s; ls /dev/shm; hostname')).toBe(`one\n${child.id}`);
  await child.out('echo child > /root/s');
  expect(await source.out('cat /root/s /dev/shm/s')).toBe('two\none');
  // The source goes, then the checkpoint: its files stay for the child, and go with it.
  await source.delete();
  const { ownBytes } = await node.ask<NodeCheckpoint>('GET', `/v1/checkpoints/${saved.id}`);
  expect(ownBytes).toBe(0);
  await removeCheckpoint(node, saved.id);
  expect(snapshotsOf(node)).toHaveLength(1);
  expect(await child.out('cat /root/s')).toBe('child');
  await child.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('memory: processes go on in a new sandbox, which is somebody else, also when the source is gone', async () => {
  const source = await node.create({ tokensFrom, env: { A: '1' } });
  await source.out('echo one > /root/s; echo one > /dev/shm/s');
  await source.out(counting);
  const { id } = await makeCheckpoint(node, source, true);
  const at = await countOf(source);
  await source.out('echo two > /root/s; echo two > /dev/shm/s');
  await source.delete();
  const { ownBytes, sharedBytes } = await node.ask<NodeCheckpoint>('GET', `/v1/checkpoints/${id}`);
  expect(ownBytes).toBeGreaterThan(10_000_000);
  expect(sharedBytes).toBe(0);
  const child = await createFrom(node, id, true, { env: { A: '2' } });
  expect(await child.out('cat /root/s /dev/shm/s; hostname; echo $A')).toBe(`one\none\n${child.id}\n2`);
  expect(await countOf(child)).toBeLessThan(at + 40);
  const count = await countOf(child);
  await child.until('it counts on', async () => (await countOf(child)) > count);
  // Of a memory checkpoint the disk alone can be had as well.
  const booted = await createFrom(node, id, false);
  expect(await booted.out('cat /root/s; ls /dev/shm')).toBe('one');
  await removeCheckpoint(node, id);
  await Promise.all([child.delete(), booted.delete()]);
  expect(snapshotsOf(node)).toEqual([]);
});

it('rollback: memory and disk as they were, the old machine gone; again, and to a disk alone', async () => {
  const sandbox = await node.create({ tokensFrom });
  await sandbox.out('echo one > /root/s; echo one > /dev/shm/s; echo > /root/of-one');
  await sandbox.out(counting);
  const { id } = await makeCheckpoint(node, sandbox, true);
  const at = await countOf(sandbox);
  for (let round = 0; round < 2; round++) {
    await sandbox.out('echo two > /root/s; echo two > /dev/shm/s; rm /root/of-one');
    const [old] = machinesOf(node);
    expect((await rollBack(node, sandbox, id, true)).state).toBe('resuming');
    expect(await sandbox.out('cat /root/s /dev/shm/s; ls /root; hostname')).toBe(
      `one\none\nof-one\ns\n${sandbox.id}`,
    );
    expect(machinesOf(node)).toHaveLength(1);
    expect(machinesOf(node)).not.toEqual([old]);
    expect(await countOf(sandbox)).toBeLessThan(at + 60);
    const clock = Number(await sandbox.python('import time; print(time.time())'));
    expect(Math.abs(clock - Date.now() / 1000)).toBeLessThan(1);
  }
  await rollBack(node, sandbox, id, false);
  expect(await sandbox.out('cat /root/s; ls /dev/shm; hostname')).toBe(`one\n${sandbox.id}`);
  // A paused one as well; and what is newer than the point it went back to can be gone to again.
  await sandbox.out('echo three > /root/s; echo three > /dev/shm/s');
  const newer = await makeCheckpoint(node, sandbox, true);
  await pauseSandbox(node, sandbox);
  await rollBack(node, sandbox, id, true);
  expect(await sandbox.out('cat /root/s /dev/shm/s')).toBe('one\none');
  await rollBack(node, sandbox, newer.id, true);
  expect(await sandbox.out('cat /root/s /dev/shm/s')).toBe('three\nthree');
  await pauseSandbox(node, sandbox);
  await resumeSandbox(node, sandbox);
  expect(await sandbox.out('cat /root/s /dev/shm/s')).toBe('three\nthree');
  expect((await sandbox.report()).generation).toBe(7);
  await removeCheckpoint(node, id);
  await removeCheckpoint(node, newer.id);
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('a paused sandbox: memory or disk of the pause, without a machine; copies go on from there, and so does it', async () => {
  const source = await node.create({ tokensFrom });
  await source.out('echo one > /root/s; echo one > /dev/shm/s; sync');
  await source.out(counting);
  await pauseSandbox(node, source);
  const [snapshot] = snapshotsOf(node);
  const whole = await makeCheckpoint(node, source, true);
  const disk = await makeCheckpoint(node, source, false);
  expect(machinesOf(node)).toEqual([]);
  expect(snapshotsOf(node)).toEqual([snapshot]);
  expect((await source.report()).state).toBe('paused');
  expect(disk).toMatchObject({ consistency: 'crash', note: expect.stringMatching(/was paused/) });
  const child = await createFrom(node, whole.id, true);
  const count = await countOf(child);
  await child.until('it counts on', async () => (await countOf(child)) > count);
  await child.out('echo child > /root/s; echo child > /dev/shm/s');
  const booted = await createFrom(node, disk.id, false);
  expect(await booted.out('cat /root/s; ls /dev/shm')).toBe('one');
  await Promise.all([child.delete(), booted.delete()]);
  await resumeSandbox(node, source);
  expect(await source.out('cat /root/s /dev/shm/s')).toBe('one\none');
  await source.out('echo two > /root/s; echo two > /dev/shm/s; sync');
  await removeCheckpoint(node, disk.id);
  // The next pause, and a save of the next machine, are above it.
  await pauseSandbox(node, source);
  const later = await makeCheckpoint(node, source, true);
  await resumeSandbox(node, source);
  await source.out('echo three > /root/s; echo three > /dev/shm/s');
  const running = await makeCheckpoint(node, source, true);
  for (const [id, word] of [
    [whole.id, 'one'],
    [later.id, 'two'],
    [running.id, 'three'],
  ] as const) {
    await rollBack(node, source, id, true);
    expect(await source.out('cat /root/s /dev/shm/s')).toBe(`${word}\n${word}`);
  }
  await source.delete();
  for (const { id } of [whole, later, running]) await removeCheckpoint(node, id);
  expect(snapshotsOf(node)).toEqual([]);
});

it('kill -9 of the node agent while a paused sandbox is saved: it is paused, goes on as it was, and what is there can be restored', async () => {
  const random = new SeededRandom(12);
  const sandbox = await node.create({ tokensFrom });
  for (let round = 0; round < 5; round++) {
    await sandbox.out(`echo ${round} > /root/s; echo ${round} > /dev/shm/s; sync`);
    await pauseSandbox(node, sandbox);
    const work = saveCheckpoint(node, sandbox, true).catch(() => undefined);
    await pause(random.between(0, 60));
    await node.killAgent();
    await work;
    await node.startAgent();
    expect((await sandbox.report()).state).toBe('paused');
    await resumeSandbox(node, sandbox);
    expect(await sandbox.out('cat /root/s /dev/shm/s')).toBe(`${round}\n${round}`);
    await sandbox.out('echo more > /root/s; sync');
    const { checkpoints } = await node.ask<{ checkpoints: NodeCheckpoint[] }>('GET', '/v1/checkpoints');
    for (const { id } of checkpoints) {
      await node.ask('POST', `/v1/checkpoints/${id}/settle`);
      const child = await createFrom(node, id, true);
      expect(await child.out('cat /root/s /dev/shm/s')).toBe(`${round}\n${round}`);
      await child.delete();
      await removeCheckpoint(node, id);
    }
  }
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('what is damaged is not restored, and says so; a disk without memory has none', async () => {
  const source = await node.create({ tokensFrom });
  await source.out('echo one > /root/s');
  const disk = await makeCheckpoint(node, source, false);
  await expect(node.request({ checkpoint: { id: disk.id, memory: true } })).rejects.toThrow(/409.*no memory/);
  await expect(rollBack(node, source, disk.id, true)).rejects.toThrow(/409.*no memory/);
  const { id } = await makeCheckpoint(node, source, true);
  const check = (memory: number) => node.ask('POST', `/v1/checkpoints/${id}/check?memory=${memory}`);
  await check(1);
  const folder = snapshotsOf(node).find((name) =>
    readdirSync(join(node.dataFolder, 'snapshots', name)).includes('memory'),
  );
  const file = openSync(join(node.dataFolder, 'snapshots', folder as string, 'memory'), 'r+');
  writeSync(file, Buffer.from('damage'), 0, 6, 50_000_000);
  await expect(check(1)).rejects.toThrow(/409.*memory of what was saved is damaged/);
  await check(0);
  const child = await node.request({ checkpoint: { id, memory: true } });
  const report = await child.untilState('running', 'failed');
  expect(report).toMatchObject({ state: 'failed', reason: 'CHECKPOINT_INVALID' });
  expect(report.message).toMatch(/memory of what was saved is damaged/);
  const booted = await createFrom(node, id, false);
  expect(await booted.out('cat /root/s')).toBe('one');
  await Promise.all([source.delete(), booted.delete(), child.delete()]);
  await removeCheckpoint(node, id);
  await removeCheckpoint(node, disk.id);
  expect(snapshotsOf(node)).toEqual([]);
});

it('kill -9 of the node agent in a checkpoint or a rollback, at any moment: the sandbox runs, as it was or is to be', async () => {
  const random = new SeededRandom(11);
  const sandbox = await node.create({ tokensFrom });
  await sandbox.out('echo begin > /root/s; echo begin > /dev/shm/s');
  const { id } = await makeCheckpoint(node, sandbox, true);
  for (let round = 0; round < 6; round++) {
    const isRollback = round % 2 === 1;
    await sandbox.out(`echo ${round} > /root/s; echo ${round} > /dev/shm/s`);
    const work = (
      isRollback ? rollBack(node, sandbox, id, true) : saveCheckpoint(node, sandbox, round === 2)
    ).catch(() => undefined);
    await pause(random.between(0, isRollback ? 600 : 400));
    await node.killAgent();
    await work;
    await node.startAgent();
    const now = await sandbox.out('cat /root/s /dev/shm/s');
    const wanted = isRollback && (await sandbox.report()).generation > (round + 1) / 2 ? 'begin' : `${round}`;
    expect(now).toBe(`${wanted}\n${wanted}`);
    expect(machinesOf(node)).toHaveLength(1);
    const { checkpoints } = await node.ask<{ checkpoints: NodeCheckpoint[] }>('GET', '/v1/checkpoints');
    for (const one of checkpoints.filter((other) => other.id !== id)) {
      await node.ask('POST', `/v1/checkpoints/${one.id}/settle`);
      const child = await createFrom(node, one.id, one.memory);
      expect(await child.out('cat /root/s')).toBe(`${round}`);
      await child.delete();
      await removeCheckpoint(node, one.id);
    }
  }
  await removeCheckpoint(node, id);
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});
