/**
 * SandboxEnv of verifiers 0.1.14, with the newest SDK that it works with: the oldest client in use. It asks
 * for "containers" by default; of machines it sends its Connect requests gzip-ed. The model is a program (`python/sandbox_env.py`), the sandboxes are real.
 */
import { afterAll, beforeAll, expect } from 'vitest';
import { inCheckout, pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';
import { FeatureTests } from './feature-results.js';
import { ClientShell } from './published-program.js';
import { venv } from './venv.js';

const image = 'python:3.11-slim';
const tests = new FeatureTests('sandbox-env');
let server: TestServer;
let shell: ClientShell;
let key: string;

/** What the program prints of each kind of environment; see there. */
interface Told {
  rewards: number[];
  errors: string[];
  waits: number[];
  answers: string[];
  left: number;
  rest: number;
  connect: number;
  gzipped: number;
}

beforeAll(async () => {
  const bin = await venv('sandbox-env', ['verifiers==0.1.14', 'prime-sandboxes==0.2.36']);
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 300_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
  shell = new ClientShell(server, bin, key, 'home-sandbox-env');
}, 1_500_000);
afterAll(() => server?.close(), 300_000);

tests.works(
  'prime-sandboxes 0.2.36, verifiers 0.1.14',
  'SandboxEnv: rollouts with a bash tool',
  async () => {
    const answer = await shell.run('python', [inCheckout('tests/clients/python/sandbox_env.py')], {
      env: { SANDBOX_IMAGE: image, PYTHONDONTWRITEBYTECODE: '1' },
      timeoutMs: 500_000,
    });
    const line = answer.stdout.trim().split('\n').at(-1) ?? '';
    if (answer.code !== 0 || !line.startsWith('{'))
      throw new Error(`ended with ${answer.code}:\n${answer.stderr.slice(-6_000)}\n${server.logs()}`);
    const { containers, machines } = JSON.parse(line) as { containers: Told; machines: Told };
    for (const [told, seeds] of [
      [containers, [77, 77, 84, 84]],
      [machines, [77, 84]],
    ] as const) {
      expect(told.errors, `${answer.stderr.slice(-3_000)}\n${server.logs()}`).toEqual([]);
      expect(told.rewards).toEqual(seeds.map(() => 1));
      expect([...told.answers].sort()).toEqual(seeds.map((seed) => `${seed} 0 salty`));
      expect(told.left).toBe(0);
      for (const wait of told.waits) expect(wait).toBeGreaterThan(0);
    }
    // Two commands of each rollout, and at least one look whether its sandbox is ready.
    expect(containers.rest).toBeGreaterThanOrEqual(12);
    expect(containers.connect).toBe(0);
    expect(machines.connect).toBeGreaterThanOrEqual(6);
    expect(machines.gzipped).toBe(machines.connect);

    const { body } = await server.ask<{ sandboxes: { status: string; labels: string[] }[] }>(
      'GET',
      '/sandbox?is_active=false',
      key,
    );
    const made = body.sandboxes.filter(({ labels }) => labels.includes('sandbox-env'));
    expect(made.map(({ status }) => status)).toEqual(Array(6).fill('TERMINATED'));
  },
  600_000,
);
