/**
 * verifiers 0.4.0, the framework of Prime's trainers: its sandbox runtime step by step and eight rollouts at
 * once, then its own `vf-eval` of a tiny environment with a model that is played here. The namespace has no
 * way to the Internet, so nothing of a run is sent anywhere.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { OutsideWorld, outside } from '../driver/outside-world.js';
import { TestServer } from '../driver/test-server.js';
import { FeatureTests } from './feature-results.js';
import { ClientShell } from './published-program.js';
import { venv } from './venv.js';

const client = 'verifiers 0.4.0';
const programs = path.resolve(import.meta.dirname, 'python');
const storyMs = 900_000;
const tests = new FeatureTests('verifiers');
const modelPort = 7301;
const interceptionPort = 7302;

let server: TestServer;
let world: OutsideWorld;
let shell: ClientShell;
let key: string;
/** What each step of the runtime's story has seen, or its error. */
let steps: Record<string, Record<string, unknown>>;

beforeAll(async () => {
  const bin = await venv('verifiers-0.4.0', ['verifiers==0.4.0']);
  server = await TestServer.start({
    kvm: 'never',
    prepare: async (namespace) => {
      world = await OutsideWorld.open(namespace);
    },
  });
  await server.mustRun(['image', 'import', pythonArchive, 'python:3.11-slim'], { timeoutMs: 300_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
  shell = new ClientShell(server, bin, key, 'home-verifiers');
  steps = JSON.parse(await play('story', outside.name, outside.address)) as typeof steps;
}, 2_400_000);
afterAll(async () => {
  // First: its uplink would be found in the server's namespace.
  world?.close();
  await server?.close();
}, 300_000);

/** Runs the driver; it prints one line of JSON. */
const play = (...args: string[]) =>
  shell.mustRun('python', [path.join(programs, 'prime_runtime.py'), ...args], { timeoutMs: storyMs });
const works = (feature: string, body: () => Promise<void>) => tests.works(client, feature, body, storyMs);
const stillRunning = async () =>
  (await server.ask<{ total: number }>('GET', '/sandbox?is_active=true', key)).body.total;

works('PrimeRuntime: create, readiness', async () => {
  expect(steps['start']).toEqual({
    id: expect.stringMatching(/^[a-z0-9]+$/),
    cached: true,
    alive: true,
  });
});
works('PrimeRuntime: run (a background job), streams and exit code', async () => {
  expect(steps['run']).toEqual({ code: 3, stdout: 'task mine /app\n', stderr: 'oops\n' });
});
works('PrimeRuntime: write and read', async () => {
  expect(steps['write_and_read']).toEqual({ same: true, begin: true, missing: 'SandboxError' });
});
works('PrimeRuntime: a background program', async () => {
  expect(steps['background']).toEqual({ log: 'begun\ndone\n' });
});
works('PrimeRuntime: a live process', async () => {
  expect(steps['live']).toEqual({ got: 'to and fro\n', ended: true });
});
works('PrimeRuntime: another user', async () => {
  expect(steps['as_user']).toEqual({ who: 'nobody\n/tmp\n', owner: 'nobody\n', read: 'text' });
});
works('PrimeRuntime: egress policy, in force', async () => {
  expect(steps['egress']).toEqual({
    before: [true, true],
    // By a name the machine may go where that name leads, also by the address.
    allowed: [true, expect.any(Boolean)],
    blocked: [false, false],
    routed: [expect.any(Boolean), true],
    opened: [true, true],
  });
});
works('PrimeRuntime: delete', async () => {
  expect(steps['stop']).toEqual({ status: 'TERMINATED' });
});

works('8 rollouts at once', async () => {
  const { rollouts, seconds } = JSON.parse(await play('many', '8')) as {
    rollouts: Record<string, unknown>[];
    seconds: number;
  };
  process.stderr.write(`8 rollouts at once took ${seconds.toFixed(1)} s\n`);
  expect(rollouts).toEqual(
    [...Array(8).keys()].map((number) => ({ id: expect.any(String), code: 0, answer: number * 7 })),
  );
  expect(new Set(rollouts.map(({ id }) => id)).size).toBe(8);
  expect(await stillRunning()).toBe(0);
});

works('vf-eval with sandboxes, rewards read from them', async () => {
  const model = await startModel();
  try {
    const url = await world.relay(interceptionPort);
    const words = [
      ...['tiny-v1', '-n', '2', '-r', '2', '-m', 'fake', '--no-push', '--no-rich', '-o', shell.home],
      ...['--run.dir', 'run', '--client.base-url', `http://127.0.0.1:${modelPort}/v1`],
      ...['--client.api-key-var', 'FAKE_KEY', '--env.agent.runtime.type', 'prime'],
      ...['--env.agent.runtime.memory', '0.5', '--env.agent.runtime.disk', '2'],
      ...['--env.interception.type', 'server', '--env.interception.tunnel.type', 'custom'],
      ...['--env.interception.tunnel.url', url],
      ...['--env.interception.tunnel.port', String(interceptionPort)],
    ];
    await shell.mustRun('vf-eval', words, {
      env: { PYTHONPATH: programs, PYTHONDONTWRITEBYTECODE: '1', FAKE_KEY: 'fake' },
      timeoutMs: storyMs,
    });
    const traces = readFileSync(path.join(shell.home, 'run/traces.jsonl'), 'utf8').trim().split('\n');
    expect(traces).toHaveLength(4);
    expect(traces.map(rewardOf).sort()).toEqual([0, 0, 1, 1]);
    expect(readdirSync(shell.home)).toContain('run');
  } finally {
    model.kill('SIGKILL');
  }
  expect(await stillRunning()).toBe(0);
});

/** The score of the one reward in a line of `traces.jsonl`. */
function rewardOf(line: string): unknown {
  const episode = JSON.parse(line) as { traces: { rewards: Record<string, { score: number }> }[] };
  return Object.values(episode.traces[0]?.rewards ?? {})[0]?.score;
}

async function startModel(): Promise<ChildProcess> {
  const [program, argv] = server.namespace.command([
    ...['python3', path.join(programs, 'fake_model.py'), String(modelPort)],
  ]);
  const child = spawn(program, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  await new Promise<unknown>((resolve, reject) => {
    child.stdout.once('data', resolve);
    child.once('exit', (code) => reject(new Error(`the model ended with ${code}`)));
  });
  return child;
}
