/** How a sandbox begins and ends: start command, timeouts, deletes, ends from inside and outside, two servers on one host. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { processesWith } from '../driver/leftovers.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { imageArchive, staticProgram, tellingProgram } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

/** Machines of the node, as processes of the host. */
const machines = () =>
  processesWith(`${node.folder}/node`).filter(({ commandLine }) => commandLine.includes('qemu'));

it('runs a start command: its output is the log, its end sets the exit code, the sandbox lives on', async () => {
  const argv = ['/bin/sh', '-c', 'echo out; echo err >&2; sleep 1; exit 4'];
  const sandbox = await node.create({ startCommand: { argv } });
  await sandbox.until('it has ended', async () => (await sandbox.report()).exitCode === 4);
  const lines = (await sandbox.logs()).trim().split('\n');
  expect(lines.sort()).toEqual(['err', 'out']);
  expect(await sandbox.out('echo alive')).toBe('alive');
  expect(Object.keys((await sandbox.report()).timings)).toEqual(
    expect.arrayContaining(['image', 'disk', 'restore', 'mount', 'ready']),
  );
  expect((await sandbox.delete()).reason).toBe('DELETED');
});

it('deletes in the middle of a start, at any moment of it', async () => {
  const random = new SeededRandom(3);
  for (let round = 0; round < 5; round++) {
    const sandbox = await node.request();
    await pause(random.between(0, 900));
    expect((await sandbox.delete()).state).toBe('stopped');
    expect(machines()).toEqual([]);
  }
});

it('refuses a sandbox again that was deleted, and a lower generation', async () => {
  const sandbox = await node.request({ generation: 3 });
  await expect(
    node.ask('PUT', `/v1/sandboxes/${sandbox.id}`, { sandboxId: sandbox.id, generation: 2 }),
  ).rejects.toThrow(/409/);
  await sandbox.delete();
  await expect(
    node.ask('PUT', `/v1/sandboxes/${sandbox.id}`, { sandboxId: sandbox.id, generation: 3 }),
  ).rejects.toThrow(/409/);
});

it('ends at its deadline', async () => {
  const sandbox = await node.create({ deadlineUnixMs: Date.now() + 8_000 });
  const report = await sandbox.untilState('stopped', 'failed');
  expect(report).toMatchObject({ state: 'stopped', reason: 'TIMEOUT' });
  expect(machines()).toEqual([]);
  await sandbox.delete();
});

it('ends when idle, but not while a command runs', async () => {
  const sandbox = await node.create({ idleTimeoutMs: 2_000 });
  await sandbox.out('sleep 5');
  expect((await sandbox.report()).state).toBe('running');
  expect(await sandbox.untilState('stopped', 'failed')).toMatchObject({
    state: 'stopped',
    reason: 'IDLE_TIMEOUT',
  });
  await expect(sandbox.run(['true'])).rejects.toMatchObject({ code: 'SANDBOX_NOT_RUNNING' });
  await sandbox.delete();
});

it('reports a machine that was killed', async () => {
  const sandbox = await node.create();
  const { pid } = await sandbox.report();
  const running = sandbox.run(['sleep', '60']);
  running.catch(() => undefined);
  await pause(500);
  process.kill(pid as number, 'SIGKILL');
  const report = await sandbox.untilState('failed');
  expect(report.reason).toBe('MACHINE_ENDED');
  expect(report.message).not.toBe('');
  await expect(running).rejects.toThrow();
  await sandbox.delete();
});

it('reports a machine that was killed in its start, at once', async () => {
  const sandbox = await node.request();
  await sandbox.until('it mounts', async () => (await sandbox.report()).stage === 'mount', 90_000, 5);
  const killed = performance.now();
  for (const { pid } of machines()) process.kill(pid, 'SIGKILL');
  expect(await sandbox.untilState('failed', 'running')).toMatchObject({ reason: 'MACHINE_ENDED' });
  expect(performance.now() - killed).toBeLessThan(10_000);
  await sandbox.delete();
});

it('reports a shutdown from inside', async () => {
  const sandbox = await node.create();
  const line = 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)';
  await sandbox.run(['python3', '-c', line]).catch(() => undefined);
  expect(await sandbox.untilState('stopped', 'failed')).toMatchObject({
    state: 'stopped',
    reason: 'GUEST_SHUTDOWN',
  });
  await sandbox.delete();
});

it('reports a panic of the guest’s kernel', async () => {
  const sandbox = await node.create();
  await sandbox.sh('echo c > /proc/sysrq-trigger', { timeoutMs: 10_000 }).catch(() => undefined);
  expect(await sandbox.untilState('stopped', 'failed')).toMatchObject({
    state: 'failed',
    reason: 'GUEST_PANIC',
  });
  await sandbox.delete();
});

it('leaves a second server of the same host alone', async () => {
  const mine = await node.create();
  const other = await TestNode.start({ withPython: false });
  try {
    const tell = { name: 'tell', content: staticProgram(tellingProgram), mode: 0o755 };
    await other.importArchive(await imageArchive([tell]), 'scratch:1');
    const theirs = await other.create({ image: 'scratch:1' });
    expect((await theirs.run(['/tell'])).exitCode).toBe(0);
    await other.killAgent();
    await other.startAgent();
    expect((await theirs.run(['/tell'])).exitCode).toBe(0);
  } finally {
    await other.close();
  }
  expect(await mine.out('echo mine')).toBe('mine');
  await mine.delete();
});
