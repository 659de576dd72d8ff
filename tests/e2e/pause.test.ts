/** A paused sandbox has no machine, and goes on where it was: processes, memory, files, sessions; whenever its node agent dies. */
import { existsSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { counting, countOf, machinesOf, pauseSandbox, resumeSandbox, snapshotsOf } from '../driver/pauses.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';

vi.setConfig({ testTimeout: 240_000 });

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it('goes on where it was, with the time of now', async () => {
  const sandbox = await node.create({ tokensFrom: 1 });
  await sandbox.out('echo d > /root/d; echo m > /dev/shm/m');
  await sandbox.out(counting);
  const session = await sandbox.exec(['/bin/sh', '-c', 'read line; echo "heard $line"'], {
    session: 'talk',
    stdin: true,
  });
  const bootId = await sandbox.out('cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname');
  const before = await countOf(sandbox);
  const waiting = session.wait();
  waiting.catch(() => undefined);
  expect(await pauseSandbox(node, sandbox)).toMatchObject({ state: 'paused', generation: 1 });
  expect(machinesOf(node)).toEqual([]);
  expect(snapshotsOf(node)).toHaveLength(1);
  await expect(waiting).rejects.toThrow(/was paused/);
  await pause(3_000);
  expect(await resumeSandbox(node, sandbox)).toMatchObject({ generation: 2 });
  await sandbox.untilState('running');
  const after = await countOf(sandbox);
  expect(after).toBeGreaterThanOrEqual(before);
  expect(after - before).toBeLessThan(100);
  await sandbox.until('it counts on', async () => (await countOf(sandbox)) > after);
  expect(await sandbox.out('cat /root/d /dev/shm/m')).toBe('d\nm');
  expect(await sandbox.out('cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname')).toBe(bootId);
  const clock = Number(await sandbox.python('import time; print(time.time())'));
  expect(Math.abs(clock - Date.now() / 1000)).toBeLessThan(1);
  const again = await sandbox.attach('talk');
  await again.write('you\n');
  let heard = '';
  for await (const chunk of again.stdout) heard += Buffer.from(chunk).toString();
  expect(heard).toBe('heard you\n');
  // And once more: what a resumed machine has changed is saved as well.
  await sandbox.out('echo dd > /root/d; echo mm > /dev/shm/m');
  await pauseSandbox(node, sandbox);
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  expect(await sandbox.out('cat /root/d /dev/shm/m')).toBe('dd\nmm');
  expect(snapshotsOf(node)).toHaveLength(1);
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('a request that comes meanwhile waits for it and gets its answer', async () => {
  const sandbox = await node.create({ idleTimeoutMs: 2_000, idleAction: 'pause', tokensFrom: 1 });
  await sandbox.out('echo m > /dev/shm/m');
  await sandbox.untilState('paused');
  const answer = sandbox.out('cat /dev/shm/m');
  await sandbox.until('it is wanted', async () => (await sandbox.report()).wanted === true);
  await resumeSandbox(node, sandbox);
  expect(await answer).toBe('m');
  expect((await sandbox.report()).wanted).toBeUndefined();
  await sandbox.untilState('paused');
  await sandbox.delete();
});

it('an idle time that pauses holds over restarts of everything, and so does what it has paused', async () => {
  const sandbox = await node.create({ idleTimeoutMs: 4_000, idleAction: 'pause', tokensFrom: 1 });
  await sandbox.out('echo m > /dev/shm/m');
  await node.killAgent();
  await node.startAgent();
  expect((await sandbox.report()).state).toBe('running');
  await sandbox.untilState('paused');
  await node.killAgent();
  await node.startAgent();
  expect((await sandbox.report()).state).toBe('paused');
  const answer = sandbox.out('cat /dev/shm/m');
  await sandbox.until('it is wanted', async () => (await sandbox.report()).wanted === true);
  await resumeSandbox(node, sandbox);
  expect(await answer).toBe('m');
  await sandbox.untilState('paused');
  await sandbox.delete();
});

it('a paused one outlives its node agent, ends at its deadline, and is deleted like any other', async () => {
  const sandbox = await node.create({ deadlineUnixMs: Date.now() + 45_000, tokensFrom: 1 });
  const other = await node.create();
  await sandbox.out('echo m > /dev/shm/m');
  await Promise.all([pauseSandbox(node, sandbox), pauseSandbox(node, other)]);
  await node.killAgent();
  await node.startAgent();
  expect((await other.report()).state).toBe('paused');
  expect((await other.delete()).state).toBe('stopped');
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  expect(await sandbox.out('cat /dev/shm/m')).toBe('m');
  await pauseSandbox(node, sandbox);
  expect(await sandbox.untilState('stopped')).toMatchObject({ reason: 'TIMEOUT' });
  expect(snapshotsOf(node)).toEqual([]);
  await sandbox.delete();
});

it('one whose files are gone or shut is refused at once, with the reason, and stays paused', async () => {
  const sandbox = await node.create({ tokensFrom: 1 });
  await sandbox.out('echo d > /root/d');
  // A layer below its disk as well.
  await node.requestFork(sandbox, 0);
  await pauseSandbox(node, sandbox);
  const disk = join(node.dataFolder, 'sandboxes', sandbox.id, 'm/overlay.qcow2');
  const layer = snapshotsOf(node)
    .map((id) => join(node.dataFolder, 'snapshots', id, 'disk.qcow2'))
    .find((path) => existsSync(path)) as string;
  for (const path of [disk, layer]) {
    renameSync(path, `${path}.away`);
    const begin = performance.now();
    await resumeSandbox(node, sandbox);
    await sandbox.untilState('paused');
    expect(performance.now() - begin).toBeLessThan(10_000);
    expect((await sandbox.report()).message).toMatch(/No such file/i);
    renameSync(`${path}.away`, path);
  }
  await resumeSandbox(node, sandbox);
  await sandbox.untilState('running');
  expect(await sandbox.out('cat /root/d')).toBe('d');
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('refuses a generation that is not higher, and what does not run', async () => {
  const sandbox = await node.create();
  await expect(node.ask('POST', `/v1/sandboxes/${sandbox.id}/resume`, { generation: 2 })).rejects.toThrow(
    /409/,
  );
  await expect(node.ask('POST', `/v1/sandboxes/${sandbox.id}/pause?generation=2`)).rejects.toThrow(/409/);
  await pauseSandbox(node, sandbox);
  await expect(node.ask('POST', `/v1/sandboxes/${sandbox.id}/resume`, { generation: 0 })).rejects.toThrow(
    /409/,
  );
  // Of a resume that never came here: the end must be of that generation, or nobody would believe it.
  const path = `/v1/sandboxes/${sandbox.id}`;
  expect(await node.ask('DELETE', `${path}?generation=3`)).toMatchObject({ state: 'stopped', generation: 3 });
  await node.ask('POST', `${path}/acknowledge?generation=3`, {});
  expect(await node.report(sandbox.id)).toBeUndefined();
});

it('kill -9 of the node agent in a pause or a resume, at any moment: one machine or none, and all is there', async () => {
  const random = new SeededRandom(6);
  const sandbox = await node.create({ tokensFrom: 1 });
  await sandbox.out(counting);
  for (let round = 0; round < 4; round++) {
    await sandbox.out(`echo ${round} > /root/round; echo ${round} > /dev/shm/round`);
    const before = await countOf(sandbox);
    const paused = pauseSandbox(node, sandbox).catch(() => undefined);
    if (round % 2 === 0) await pause(random.between(0, 900));
    else {
      await paused;
      void resumeSandbox(node, sandbox).catch(() => undefined);
      await pause(random.between(0, 500));
    }
    await node.killAgent();
    await paused;
    await node.startAgent();
    const { state } = await sandbox.untilState('running', 'paused', 'stopped', 'failed');
    expect(['running', 'paused']).toContain(state);
    expect(machinesOf(node)).toHaveLength(state === 'running' ? 1 : 0);
    if (state === 'paused') {
      await resumeSandbox(node, sandbox);
      await sandbox.untilState('running');
    }
    expect(await sandbox.out('cat /root/round /dev/shm/round')).toBe(`${round}\n${round}`);
    expect(await countOf(sandbox)).toBeGreaterThanOrEqual(before);
    expect(machinesOf(node)).toHaveLength(1);
  }
  await sandbox.delete();
  expect(snapshotsOf(node)).toEqual([]);
});
