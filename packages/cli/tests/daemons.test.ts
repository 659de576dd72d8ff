/** Daemons: started, found healthy, explained when they fail, found again by pid and start time, stopped, kept running, brought up by `up`. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { CliContext } from '../src/context.js';
import { isStale } from '../src/up/build-time.js';
import { type DaemonSpec, isRunning, lastLines, startDaemon } from '../src/up/daemon.js';
import { readInstance } from '../src/up/instance.js';
import type { LocalServer } from '../src/up/local-server.js';
import { withLock } from '../src/up/lock.js';
import { hasEnded, isAlive, readReadyFile, signalProcess, startTicksOf } from '../src/up/process-identity.js';
import { requestDaemon } from '../src/up/socket-request.js';
import { startWhatIsMissing } from '../src/up/start-daemons.js';
import { stopDaemon } from '../src/up/stop-daemon.js';
import { supervise } from '../src/up/supervise.js';

let folder: string;
const readyFiles: string[] = [];
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'sandlot-up-'));
});
afterEach(async () => {
  for (const file of readyFiles.splice(0)) {
    const ready = readReadyFile(file);
    if (!ready) continue;
    signalProcess(ready, 'SIGKILL');
    expect(await hasEnded(ready, 5_000)).toBe(true);
  }
  rmSync(folder, { recursive: true, force: true });
});

function spec(name: string, mode = ''): DaemonSpec {
  const socketPath = path.join(folder, `${name}.sock`);
  const readyFile = path.join(folder, `${name}.json`);
  readyFiles.push(readyFile);
  return {
    role: 'node agent',
    main: path.join(import.meta.dirname, 'fake-daemon.mjs'),
    args: [socketPath, readyFile, mode],
    logFile: path.join(folder, 'logs', `${name}.log`),
    readyFile,
    health: { socketPath },
    startTimeoutMs: 20_000,
  };
}

function serverOf(nodeAgent: DaemonSpec, controlPlane: DaemonSpec): LocalServer {
  return {
    layout: { run: folder },
    nodeAgent,
    controlPlane: { ...controlPlane, role: 'control plane' },
  } as LocalServer;
}

describe('a daemon', () => {
  it('is started in a session of its own, found again, and stopped', async () => {
    const one = spec('a');
    expect(await isRunning(one)).toBe(false);
    const ready = await startDaemon(one);
    expect(await isRunning(one)).toBe(true);
    const session = readFileSync(`/proc/${ready.pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[3];
    expect(Number(session)).toBe(ready.pid);
    expect(await stopDaemon(one.readyFile)).toBe('ended');
    expect(await isRunning(one)).toBe(false);
    expect(await stopDaemon(one.readyFile)).toBe('absent');
  });

  it('is asked before it is told', async () => {
    const one = spec('a');
    await startDaemon(one);
    const by = () => requestDaemon(one.health, 'POST', '/v1/shutdown', { removeNetwork: true });
    expect(await stopDaemon(one.readyFile, { by, withinMs: 5_000 })).toBe('ended');
  });

  it('does not see our secrets', async () => {
    process.env['SANDLOT_API_KEY'] = 'secret';
    try {
      const ready = await startDaemon(spec('a'));
      const environment = readFileSync(`/proc/${ready.pid}/environ`, 'utf8');
      expect(environment).toContain('PATH=');
      expect(environment).not.toContain('SANDLOT_API_KEY');
    } finally {
      delete process.env['SANDLOT_API_KEY'];
    }
  });

  it('that fails is reported with its last lines', async () => {
    const one = spec('a', 'fail');
    mkdirSync(path.dirname(one.logFile), { recursive: true });
    writeFileSync(one.logFile, 'a line of an earlier start\n');
    const error = await startDaemon(one).catch((caught: unknown) => caught as Error);
    expect((error as Error).message).toMatch(
      /node agent did not start: it has ended: exit code 3[\s\S]*the reason why it cannot start/,
    );
    expect((error as Error).message).not.toContain('earlier start');
  });

  it('that never gets ready is ended', async () => {
    const one = { ...spec('a', 'hang'), startTimeoutMs: 400 };
    const error = await startDaemon(one).catch((caught: unknown) => caught as Error);
    expect((error as Error).message).toContain('not ready within 0.4 s');
  });

  it('is not mistaken for another process of the same pid', async () => {
    const one = spec('a');
    const ready = await startDaemon(one);
    writeFileSync(one.readyFile, JSON.stringify({ ...ready, startTicks: ready.startTicks - 1 }));
    expect(isAlive(readReadyFile(one.readyFile))).toBe(false);
    expect(await stopDaemon(one.readyFile)).toBe('absent');
    expect(startTicksOf(ready.pid)).toBe(ready.startTicks);
    writeFileSync(one.readyFile, JSON.stringify(ready));
  });

  it('older than its build is stale', async () => {
    const dist = path.join(folder, 'packages', 'node-agent', 'dist');
    mkdirSync(dist, { recursive: true });
    writeFileSync(path.join(dist, 'main.js'), '');
    const ready = path.join(folder, 'ready.json');
    writeFileSync(ready, '{}');
    utimesSync(ready, 1_000, 1_000);
    expect(isStale('node agent', folder, ready)).toBe(true);
    expect(isStale('control plane', folder, ready)).toBe(false);
    utimesSync(path.join(dist, 'main.js'), 500, 500);
    expect(isStale('node agent', folder, ready)).toBe(false);
  });
});

describe('in the foreground', () => {
  it('a daemon that dies is started again, and both are stopped at the end', async () => {
    const notes: string[] = [];
    const listeners = new Map<string, () => void>();
    const context = {
      out: { note: (text: string) => notes.push(text) },
      onSignal: (name: string, listener: () => void) => {
        listeners.set(name, listener);
        return () => listeners.delete(name);
      },
    } as unknown as CliContext;
    const server = serverOf(spec('node', 'die'), spec('control'));
    await startDaemon(server.nodeAgent);
    await startDaemon(server.controlPlane);
    const first = readReadyFile(server.nodeAgent.readyFile)?.pid;
    const done = supervise(context, server);
    const deadline = performance.now() + 10_000;
    for (;;) {
      const now = readReadyFile(server.nodeAgent.readyFile);
      if (now && now.pid !== first && isAlive(now)) break;
      if (performance.now() > deadline) throw new Error('it was not started again');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(notes[0]).toContain('the node agent has ended; starting it again');
    listeners.get('SIGINT')?.();
    expect(await done).toBe('told');
    expect(isAlive(readReadyFile(server.nodeAgent.readyFile))).toBe(false);
    expect(isAlive(readReadyFile(server.controlPlane.readyFile))).toBe(false);
    expect(listeners.size).toBe(0);
  });

  it('an end from elsewhere is not undone', async () => {
    const context = {
      out: { note: () => undefined },
      onSignal: () => () => undefined,
    } as unknown as CliContext;
    const server = serverOf(spec('node'), spec('control'));
    await startDaemon(server.nodeAgent);
    await startDaemon(server.controlPlane);
    const done = supervise(context, server);
    await withLock(
      folder,
      () => undefined,
      async () => {
        for (const one of [server.controlPlane, server.nodeAgent]) {
          await stopDaemon(one.readyFile);
          rmSync(one.readyFile);
        }
      },
    );
    expect(await done).toBe('elsewhere');
  });
});

describe('brought up', () => {
  it('keeps the flags of a node agent that has started, also when the control plane does not', async () => {
    const kept = serverOf(spec('node'), spec('control', 'fail'));
    const instance = { instanceId: 'beef', createdAt: '', options: { kvm: 'never' } };
    const wanted = {
      ...kept,
      layout: { run: folder, instanceFile: path.join(folder, 'instance.json') },
      instance,
    } as LocalServer;
    const context = { out: { note: () => undefined } } as unknown as CliContext;
    await expect(startWhatIsMissing(context, kept, wanted, {})).rejects.toThrow(
      'the control plane did not start',
    );
    expect(readInstance(wanted.layout.instanceFile)).toEqual(instance);
  });
});

it('the last lines of a log', () => {
  const file = path.join(folder, 'log');
  writeFileSync(file, 'a\nb\nc\n');
  expect(lastLines(file, 2)).toBe('b\nc');
  expect(lastLines(path.join(folder, 'none'), 2)).toBe('');
});
