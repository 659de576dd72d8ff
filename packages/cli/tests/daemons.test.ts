/** Daemons: started, found healthy, explained when they fail, found again by pid and start time, stopped, kept running. */
import { spawn } from 'node:child_process';
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseOptions as readControlPlaneOptions } from '../../control-plane/src/options.js';
import { parseOptions as readNodeAgentOptions } from '../../node-agent/src/options.js';
import { startWhatIsMissing, type UpOptions } from '../src/actions/up.js';
import type { CliContext } from '../src/context.js';
import { buildProgram } from '../src/program.js';
import { isStale } from '../src/up/build-time.js';
import { checkOptions } from '../src/up/check-options.js';
import { type DaemonSpec, isRunning, lastLines, startDaemon } from '../src/up/daemon.js';
import { readInstance } from '../src/up/instance.js';
import { ensureGatewayKeys } from '../src/up/keys.js';
import { instanceIdOf, layoutOf, makeDataFolder } from '../src/up/layout.js';
import { keepOptions, type LocalServer, prepareServer, withOptions } from '../src/up/local-server.js';
import { withLock } from '../src/up/lock.js';
import {
  controlPlaneArguments,
  type DaemonOptions,
  daemonOptionNames,
  localUrlOf,
  mergeOptions,
  nodeAgentArguments,
} from '../src/up/options.js';
import { hasEnded, isAlive, readReadyFile, signalProcess, startTicksOf } from '../src/up/process-identity.js';
import { canTraverse } from '../src/up/reachable-build.js';
import { findUser } from '../src/up/service-user.js';
import { requestDaemon } from '../src/up/socket-request.js';
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

describe('the lock', () => {
  it('lets one in after the other', async () => {
    const order: string[] = [];
    const work = (name: string) =>
      withLock(
        folder,
        () => undefined,
        async () => {
          order.push(`${name} in`);
          await new Promise((resolve) => setTimeout(resolve, 50));
          order.push(`${name} out`);
        },
      );
    await Promise.all([work('a'), work('b')]);
    const script = `import { withLock } from ${JSON.stringify(path.join(import.meta.dirname, '../dist/up/lock.js'))};
      await withLock(process.argv[1], () => {}, async () => { console.log('in'); await new Promise((r) => setTimeout(r, 400)); });`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, folder]);
    const ended = once(child, 'exit');
    await once(child.stdout, 'data');
    const begun = performance.now();
    let told = 0;
    await withLock(
      folder,
      (pid) => {
        told = pid;
      },
      async () => undefined,
    );
    expect(told).toBe(child.pid);
    expect(performance.now() - begun).toBeGreaterThan(200);
    await ended;
    const first = order[0]?.[0];
    expect(order.slice(0, 2)).toEqual([`${first} in`, `${first} out`]);
    expect(order).toHaveLength(4);
  });

  it('of a dead process does not count', async () => {
    writeFileSync(path.join(folder, 'lock'), JSON.stringify({ pid: 1, startTicks: 1, version: '' }));
    expect(
      await withLock(
        folder,
        () => undefined,
        async () => 'in',
      ),
    ).toBe('in');
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe('an instance', () => {
  it('has an id made from the real path of its data', () => {
    const real = path.join(folder, 'data');
    mkdirSync(real);
    symlinkSync(real, path.join(folder, 'link'));
    const id = instanceIdOf(makeDataFolder(path.join(folder, 'link')));
    expect(id).toMatch(/^[0-9a-f]{4}$/);
    expect(id).toBe(instanceIdOf(makeDataFolder(real)));
    expect(id).not.toBe(instanceIdOf(`${real}2`));
  });

  it('has a pair of keys that fit, kept from then on, readable by their owner', () => {
    const layout = layoutOf(folder);
    ensureGatewayKeys(layout, undefined);
    const file = path.join(layout.keys, 'gateway.key');
    const text = readFileSync(file, 'utf8');
    const derived = createPublicKey(createPrivateKey(text)).export({ type: 'spki', format: 'pem' });
    expect(derived).toBe(readFileSync(layout.gatewayPublicKey, 'utf8'));
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(layout.keys).mode & 0o777).toBe(0o700);
    ensureGatewayKeys(layout, undefined);
    expect(readFileSync(file, 'utf8')).toBe(text);
  });

  it('keeps its flags until they are given anew', () => {
    const kept = mergeOptions(
      { listen: '0.0.0.0:1', kvm: 'never' },
      { kvm: 'auto', output: 'json', detach: true },
    );
    expect(kept).toEqual({ listen: '0.0.0.0:1', kvm: 'auto' });
  });

  it('checks new flags before anything is stopped, and keeps them only with `keepOptions`', async () => {
    const kept = prepareServer(path.join(folder, 'data'), false);
    expect(withOptions(kept, { output: 'json', detach: true })).toBe(kept);
    const wanted = withOptions(kept, { listen: 'nonsense', kvm: 'never' });
    expect(kept.url).toBe('http://127.0.0.1:7070');
    await expect(checkOptions([wanted.nodeAgent, wanted.controlPlane])).rejects.toMatchObject({
      message: '--listen must be HOST:PORT, got nonsense',
      exitCode: 2,
    });
    await checkOptions([kept.nodeAgent, kept.controlPlane]);
    const { layout } = kept;
    expect(readInstance(layout.instanceFile)).toEqual(kept.instance);
    keepOptions(withOptions(kept, { listen: '127.0.0.1:1' }));
    expect(prepareServer(path.join(folder, 'data'), false).url).toBe('http://127.0.0.1:1');
  });

  it('keeps the flags of a node agent that has started, also when the control plane does not', async () => {
    const kept = serverOf(spec('node'), spec('control', 'fail'));
    const instance = { instanceId: 'beef', createdAt: '', options: { kvm: 'never' } };
    const wanted = {
      ...kept,
      layout: { run: folder, instanceFile: path.join(folder, 'instance.json') },
      instance,
    } as LocalServer;
    const context = { out: { note: () => undefined } } as unknown as CliContext;
    await expect(startWhatIsMissing(context, kept, wanted, {} as UpOptions)).rejects.toThrow(
      'the control plane did not start',
    );
    expect(readInstance(wanted.layout.instanceFile)).toEqual(instance);
  });

  it('starts its daemons with these words', () => {
    const layout = layoutOf('/d');
    expect(
      nodeAgentArguments(
        layout,
        'beef',
        {
          guestAssets: '/g',
          kvm: 'never',
          allowPrivate: ['10.0.0.0/8', '172.16.0.0/12'],
          allowHostPort: ['80'],
          poolSize: 2,
        },
        { uid: 9, gid: 8 },
      ).join(' '),
    ).toBe(
      '--data /d/node --socket /d/run/node.sock --public-key /d/keys/gateway.pub --instance beef --ready-file /d/run/node.json --log-folder /d/logs --guest-assets /g --kvm never --allow-private 10.0.0.0/8 --allow-private 172.16.0.0/12 --allow-host-port 80 --run-children-as 9:8 --pool-size 2',
    );
    expect(controlPlaneArguments(layout, { publicUrl: 'https://x' }).join(' ')).toContain(
      '--data /d/control-plane --keys /d/keys --listen 127.0.0.1:7070 --node-socket /d/run/node.sock --admin-socket /d/run/admin.sock',
    );
  });

  it('has a flag of `up` for everything that its daemons can be told', () => {
    const program = buildProgram({} as CliContext, () => undefined);
    const up = program.commands.find((command) => command.name() === 'up');
    const own = ['detach', 'restart', 'ifStale', 'data', 'output'];
    const flags = (up?.options ?? []).map((option) => option.attributeName());
    expect(flags.filter((name) => !own.includes(name)).sort()).toEqual([...daemonOptionNames].sort());

    const options = {
      ...{ listen: '0.0.0.0:1', publicUrl: 'https://x', trustedProxy: ['10.0.0.0/8', '::1'] },
      ...{ cpuOvercommit: 3, memoryOvercommit: 4, diskOvercommit: 5, allowPrivate: ['10.1.0.0/16'] },
      ...{ allowHostPort: ['80', '443'], subnet: '10.77.0.0/20', rootlessNetwork: true },
      ...{ kvm: 'never', driver: 'fake', agentBinary: '/a', prebuild: ['1x256'], guestAssets: '/g' },
      ...{ insecureRegistry: ['r:5000'], poolSize: 2 },
    } satisfies Required<DaemonOptions>;
    expect(
      readNodeAgentOptions(nodeAgentArguments(layoutOf('/d'), 'beef', options, undefined)),
    ).toMatchObject({
      ...{ cpuOvercommit: 3, memoryOvercommit: 4, diskOvercommit: 5, allowPrivate: ['10.1.0.0/16'] },
      ...{ allowHostPorts: [80, 443], subnet: '10.77.0.0/20', rootlessNetwork: true, kvm: 'never' },
      ...{ driver: 'fake', agentBinary: '/a', prebuild: [{ vcpus: 1, memoryMiB: 256 }], guestAssets: '/g' },
      ...{ insecureRegistries: ['r:5000'], poolSize: 2 },
    });
    expect(readControlPlaneOptions(controlPlaneArguments(layoutOf('/d'), options)).server).toMatchObject({
      ...{ host: '0.0.0.0', port: 1, publicUrl: 'https://x', trustedProxies: ['10.0.0.0/8', '::1'] },
    });
  });

  it('is reached through loopback wherever it listens', () => {
    expect(localUrlOf('0.0.0.0:80')).toBe('http://127.0.0.1:80');
    expect(localUrlOf('[::]:80')).toBe('http://127.0.0.1:80');
    expect(localUrlOf('10.0.0.1:80')).toBe('http://10.0.0.1:80');
    expect(localUrlOf('8080')).toBe('http://127.0.0.1:8080');
  });
});

describe('the service user', () => {
  it('is looked up in passwd', () => {
    const passwd = 'root:x:0:0:root:/root:/bin/bash\nsandlot:x:998:997::/nonexistent:/usr/sbin/nologin\n';
    expect(findUser('sandlot', passwd)).toEqual({
      name: 'sandlot',
      uid: 998,
      gid: 997,
      home: '/nonexistent',
    });
    expect(findUser('nobody', passwd)).toBeUndefined();
  });

  it('cannot walk through a closed folder', () => {
    const closed = path.join(folder, 'closed', 'in');
    mkdirSync(closed, { recursive: true });
    const stranger = { uid: 64_000, gid: 64_000 };
    statSync(folder);
    expect(canTraverse('/usr/bin', stranger)).toBe(true);
    expect(canTraverse(closed, stranger)).toBe(false);
  });
});

it('the last lines of a log', () => {
  const file = path.join(folder, 'log');
  writeFileSync(file, 'a\nb\nc\n');
  expect(lastLines(file, 2)).toBe('b\nc');
  expect(lastLines(path.join(folder, 'none'), 2)).toBe('');
});
