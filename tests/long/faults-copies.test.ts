/** kill -9 of each daemon and of machines at seeded moments of pauses, resumes and forks, and deletes on the way; part of `make test-long-faults`. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { CrashStory, copySteps, victims } from '../driver/crash-story.js';
import {
  counting,
  countOf,
  machinesOf,
  pauseSandbox,
  rebootHost,
  resumeSandbox,
  snapshotsOf,
} from '../driver/pauses.js';
import { SeededRandom, seedOfRun } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';
import { TestServer } from '../driver/test-server.js';

const image = 'python:3.11-slim';
const roundsOfEach = 4;

describe('on a server', () => {
  let server: TestServer;
  let story: CrashStory;

  beforeAll(async () => {
    server = await TestServer.start();
    await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
    story = await CrashStory.begin(server, image, new SeededRandom(seedOfRun('kills of copies')));
  });
  afterAll(async () => {
    await story?.end();
    await server?.close();
  });

  const rounds = victims.flatMap((victim) => copySteps.map((step) => ({ victim, step })));
  const all = [...Array(roundsOfEach).keys()].flatMap((turn) => rounds.map((round) => ({ ...round, turn })));

  it.each(all)(
    'kill -9 of the $victim in a $step, turn $turn: nothing is lost, nothing is left',
    async (round) => {
      await story.round(round.victim, round.step);
    },
    240_000,
  );

  it('an idle time that pauses holds over a restart of everything', async () => {
    const small = ['--memory', '0.5', '--disk', '2'];
    const idle = ['--idle-timeout', '1', '--idle-action', 'pause'];
    const id = await server.lastLine(['create', image, ...small, ...idle]);
    await server.mustRun(['run', id, '--', '/bin/sh', '-c', 'echo kept > /dev/shm/kept']);
    const restart = async () => {
      const { processes } = await server.json<{ processes: { pid: number }[] }>(['status']);
      for (const { pid } of processes) process.kill(pid, 'SIGKILL');
      await server.up();
    };
    const status = async () => (await server.json<{ status: string }>(['get', id])).status;
    await restart();
    await expect.poll(status, { timeout: 150_000, interval: 1_000 }).toBe('PAUSED');
    await restart();
    expect(await status()).toBe('PAUSED');
    expect(await server.mustRun(['run', id, '--', 'cat', '/dev/shm/kept'])).toBe('kept\n');
    await server.mustRun(['rm', id]);
  }, 400_000);
});

describe('on a node', () => {
  let node: TestNode;
  let random: SeededRandom;

  beforeAll(async () => {
    node = await TestNode.start();
    random = new SeededRandom(seedOfRun('copies on a node'));
  });
  afterAll(() => node?.close());

  async function expectNothing(): Promise<void> {
    await expect.poll(() => machinesOf(node), { timeout: 20_000 }).toEqual([]);
    await expect.poll(() => snapshotsOf(node), { timeout: 20_000 }).toEqual([]);
    expect(await node.reports()).toEqual([]);
  }

  it.each([...Array(8).keys()])(
    'a delete of the source at any moment of a fork, turn %i: copies run, or there are none',
    async () => {
      const source = await node.create();
      await source.out('echo kept > /dev/shm/kept');
      const afterMs = random.between(0, 700);
      const forking = node.requestFork(source, 2).catch((error: Error) => error);
      await pause(afterMs);
      await source.delete();
      const outcome = await forking;
      if (outcome instanceof Error) expect(outcome.message, `after ${afterMs} ms`).toMatch(/409/);
      else
        for (const copy of outcome) {
          expect((await copy.untilState('running', 'failed')).state).toBe('running');
          expect(await copy.out('cat /dev/shm/kept')).toBe('kept');
          await copy.delete();
        }
      await expectNothing();
    },
    240_000,
  );

  it.each([...Array(6).keys()])(
    'a delete in a pause, a resume or the start of a copy, turn %i: nothing is left',
    async (turn) => {
      const source = await node.create({ tokensFrom: 1 });
      let victim = source;
      const afterMs = random.between(0, 500);
      let work: Promise<unknown>;
      if (turn % 3 === 0) work = pauseSandbox(node, source);
      else if (turn % 3 === 1) {
        await pauseSandbox(node, source);
        work = resumeSandbox(node, source);
      } else {
        [victim] = (await node.requestFork(source, 1)) as [TestSandbox];
        work = Promise.resolve();
      }
      work.catch(() => undefined);
      await pause(afterMs);
      await victim.delete();
      await work.catch(() => undefined);
      if (victim !== source) await source.delete();
      await expectNothing();
    },
    240_000,
  );

  it('fork of what starts, is paused, or is being deleted: refused, and nothing is made', async () => {
    const source = await node.request();
    await expect(node.requestFork(source, 1)).rejects.toThrow(/409.*is (pending|starting)/);
    await source.untilState('running');
    await pauseSandbox(node, source);
    await expect(node.requestFork(source, 1)).rejects.toThrow(/409.*is paused/);
    const deleting = source.delete();
    await expect(node.requestFork(source, 1)).rejects.toThrow(/409/);
    await deleting;
    await expectNothing();
  }, 240_000);

  it('restarts of the host at any moment: what is paused goes on, what runs has ended with its reason', async () => {
    for (let turn = 0; turn < 4; turn++) {
      const sandbox = await node.create({ tokensFrom: 1 });
      const other = await node.create();
      await sandbox.out('echo kept > /dev/shm/kept');
      await sandbox.out(counting);
      await pauseSandbox(node, sandbox);
      if (turn % 2 === 1) void resumeSandbox(node, sandbox).catch(() => undefined);
      await pause(turn % 2 === 1 ? random.between(0, 300) : 0);
      await rebootHost(node);
      expect(await other.report()).toMatchObject({ state: 'failed', reason: 'MACHINE_ENDED' });
      await other.delete();
      // One whose machine had begun to run has lost its memory with it.
      const { state } = await sandbox.untilState('paused', 'running', 'failed');
      if (turn % 2 === 0) expect(state).toBe('paused');
      if (state === 'paused') await resumeSandbox(node, sandbox);
      if (state !== 'failed') {
        await sandbox.untilState('running');
        expect(await sandbox.out('cat /dev/shm/kept')).toBe('kept');
        expect(await countOf(sandbox)).toBeGreaterThan(0);
      }
      await sandbox.delete();
      await expectNothing();
    }
  }, 400_000);
});
