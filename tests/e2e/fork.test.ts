/** Copies of a running sandbox: its processes, memory and files go on in each, and each is somebody else; the source goes on too. */
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { counting, countOf, machinesOf, pauseSandbox, resumeSandbox, snapshotsOf } from '../driver/pauses.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

vi.setConfig({ testTimeout: 240_000 });

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

async function fork(source: TestSandbox, count: number, change: Partial<NodeSandboxSpec> = {}) {
  const copies = await node.requestFork(source, count, change);
  for (const copy of copies) expect((await copy.untilState('running', 'failed')).state).toBe('running');
  return copies;
}

it('processes, memory, files and sessions go on in each copy, and in the source', async () => {
  const source = await node.create({ env: { GIVEN: 'source' } });
  await source.out('echo d > /root/d; echo m > /dev/shm/m');
  await source.out(counting);
  const talk = await source.exec(['/bin/sh', '-c', 'while read line; do echo "heard $line"; done'], {
    session: 'talk',
    stdin: true,
  });
  let heard = '';
  const hearing = (async () => {
    for await (const chunk of talk.stdout) heard += Buffer.from(chunk).toString();
  })();
  await talk.write('before\n');
  const before = await countOf(source);
  const copies = await fork(source, 3, { env: { GIVEN: 'copy' } });
  await talk.write('after\n');
  await source.until('its stream goes on', async () => heard === 'heard before\nheard after\n');
  for (const copy of copies) {
    expect(await copy.out('cat /root/d /dev/shm/m; echo $GIVEN')).toBe('d\nm\ncopy');
    const count = await countOf(copy);
    expect(count).toBeGreaterThanOrEqual(before);
    await copy.until('it counts on', async () => (await countOf(copy)) > count);
    const again = await copy.attach('talk');
    await again.write(`to ${copy.id}\n`);
    let own = '';
    for await (const chunk of again.stdout) {
      own += Buffer.from(chunk).toString();
      if (own.includes(copy.id)) break;
    }
    again.close();
    expect(own).toContain(`heard to ${copy.id}\n`);
    await copy.out(`echo ${copy.id} > /root/d; echo ${copy.id} > /dev/shm/m`);
  }
  for (const copy of copies) expect(await copy.out('cat /root/d /dev/shm/m')).toBe(`${copy.id}\n${copy.id}`);
  expect(await source.out('cat /root/d /dev/shm/m; echo $GIVEN')).toBe('d\nm\nsource');
  expect(heard).toBe('heard before\nheard after\n');
  talk.close();
  await hearing.catch(() => undefined);
  // The files that they share stay as long as one of them needs them.
  await source.delete();
  await Promise.all(copies.slice(1).map((copy) => copy.delete()));
  const [last] = copies as [TestSandbox];
  expect(snapshotsOf(node)).toHaveLength(1);
  expect(await last.out('cat /root/d')).toBe(last.id);
  await last.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('every copy is somebody else, before its first answer', async () => {
  const source = await node.create();
  const copies = await fork(source, 3);
  const all = [source, ...copies];
  const facts = await Promise.all(
    all.map((one) =>
      one.python(
        `import os, random, socket, time, uuid
print(os.urandom(8).hex(), uuid.uuid4(), random.random(), socket.gethostname(), open('/etc/machine-id').read().strip(), open('/etc/hostname').read().strip(), sep='\\n')`,
      ),
    ),
  );
  const columns = facts.map((text) => text.split('\n'));
  for (let column = 0; column < 6; column++)
    expect(new Set(columns.map((row) => row[column])).size, `column ${column}`).toBe(all.length);
  expect(columns.map((row) => row[3])).toEqual(all.map(({ id }) => id));
  for (const copy of copies) {
    const clock = Number(await copy.python('import time; print(time.time())'));
    expect(Math.abs(clock - Date.now() / 1000)).toBeLessThan(1);
    expect(await copy.out('getent hosts $(hostname) | wc -l')).toBe('1');
  }
  await Promise.all(all.map((one) => one.delete()));
});

it('copies of copies, pauses of copies, and a reboot above shared disks', async () => {
  const source = await node.create({ tokensFrom: 1 });
  await source.out('echo 1 > /root/n');
  const [child] = await fork(source, 1, { tokensFrom: 1 });
  await child?.out('echo 2 > /root/n; echo 2 > /dev/shm/n');
  const [grandchild] = await fork(child as TestSandbox, 1, { tokensFrom: 1 });
  await source.delete();
  expect(await grandchild?.out('cat /root/n /dev/shm/n')).toBe('2\n2');
  await pauseSandbox(node, child as TestSandbox);
  await grandchild?.out('echo 3 > /root/n');
  await resumeSandbox(node, child as TestSandbox);
  await child?.untilState('running');
  expect(await child?.out('cat /root/n /dev/shm/n')).toBe('2\n2');
  await grandchild?.sh('sync; echo b > /proc/sysrq-trigger').catch(() => undefined);
  await grandchild?.until(
    'it has rebooted',
    async () => (await grandchild.out('cat /root/n; ls /dev/shm').catch(() => '')) === '3',
    90_000,
    250,
  );
  await child?.delete();
  expect(await grandchild?.out('cat /root/n')).toBe('3');
  await grandchild?.delete();
  expect(snapshotsOf(node)).toEqual([]);
});

it('what does not run is not forked; a delete in a fork leaves nothing', async () => {
  const source = await node.create();
  await expect(node.requestFork(source, 1, {}, 2)).rejects.toThrow(/409/);
  const forking = node.requestFork(source, 2).catch((error: Error) => error);
  await pause(60);
  await source.delete();
  const outcome = await forking;
  if (Array.isArray(outcome)) await Promise.all(outcome.map((copy) => copy.delete()));
  expect(machinesOf(node)).toEqual([]);
  expect(snapshotsOf(node)).toEqual([]);
});

it('kill -9 of the node agent in a fork, at any moment: the source runs on, and a copy runs or is not there', async () => {
  const random = new SeededRandom(7);
  const source = await node.create();
  await source.out(counting);
  for (let round = 0; round < 6; round++) {
    await source.out(`echo ${round} > /root/round; echo ${round} > /dev/shm/round`);
    const forking = node.requestFork(source, 1).catch(() => undefined);
    await pause(random.between(0, 1_200));
    await node.killAgent();
    await forking;
    await node.startAgent();
    expect((await source.report()).state).toBe('running');
    expect(await source.out('cat /root/round /dev/shm/round')).toBe(`${round}\n${round}`);
    const others = (await node.reports()).filter(({ sandboxId }) => sandboxId !== source.id);
    for (const { sandboxId } of others) {
      const copy = node.sandbox(sandboxId);
      const report: SandboxReport = await copy.untilState('running', 'failed');
      expect(report.state).toBe('running');
      expect(await copy.out('cat /root/round /dev/shm/round')).toBe(`${round}\n${round}`);
      await copy.delete();
    }
    expect(machinesOf(node)).toHaveLength(1);
  }
  await source.delete();
  expect(snapshotsOf(node)).toEqual([]);
});
