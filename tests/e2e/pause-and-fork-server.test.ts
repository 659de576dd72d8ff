/** Pause, resume and fork as a user has them: the command line, whole servers, a control plane that dies on the way. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';

vi.setConfig({ testTimeout: 240_000 });

const image = 'python:3.11-slim';
const small = ['--memory', '0.5', '--disk', '2', '--label', 'story'];

let server: TestServer;

beforeAll(async () => {
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
});
afterAll(() => server?.close());

interface Status {
  processes: { pid: number; role: string }[];
  machines: { id: string; pid: number }[];
}
interface Info {
  id: string;
  status: string;
  generation: number;
}

const out = async (id: string, line: string) =>
  (await server.mustRun(['run', id, '--', '/bin/sh', '-c', line])).trim();
const statusOf = async (id: string) => (await server.json<Info>(['get', id])).status;

it('a paused sandbox has no machine, and wakes with its next command', async () => {
  const id = await server.lastLine(['create', image, ...small]);
  await out(id, 'echo m > /dev/shm/m');
  expect(await server.lastLine(['pause', id])).toBe(id);
  expect(await statusOf(id)).toBe('PAUSED');
  expect((await server.json<Status>(['status'])).machines).toEqual([]);
  expect(await out(id, 'cat /dev/shm/m')).toBe('m');
  expect(await server.json<Info>(['get', id])).toMatchObject({ status: 'RUNNING', generation: 2 });
  await server.mustRun(['pause', id]);
  for (const { pid } of (await server.json<Status>(['status'])).processes) process.kill(pid, 'SIGKILL');
  await server.up();
  expect(await statusOf(id)).toBe('PAUSED');
  expect(await server.lastLine(['resume', id])).toBe(id);
  expect(await out(id, 'cat /dev/shm/m')).toBe('m');
  await server.mustRun(['pause', id]);
  await server.mustRun(['rm', id]);
});

it('a fork makes running siblings, each somebody else', async () => {
  const id = await server.lastLine(['create', image, ...small, '--env', 'A=1']);
  await out(id, 'echo d > /root/d; (while :; do date +%s%N > /dev/shm/n; sleep 0.2; done) >/dev/null 2>&1 &');
  const copies = (await server.mustRun(['fork', id, '-n', '3', '--label', 'story', '--env', 'A=2']))
    .trim()
    .split('\n');
  expect(new Set(copies).size).toBe(3);
  const facts = new Set<string>();
  for (const copy of copies) {
    const [data, env, alive, name, random] = (
      await out(
        copy,
        'cat /root/d; echo $A; a=$(cat /dev/shm/n); for i in $(seq 50); do sleep 0.2; b=$(cat /dev/shm/n); [ -n "$b" ] && [ "$b" != "$a" ] && echo alive && break; done; hostname; od -An -N8 -tx1 /dev/urandom',
      )
    ).split('\n');
    expect([data, env, alive, name]).toEqual(['d', '2', 'alive', copy]);
    facts.add(`${random}`);
  }
  expect(facts.size).toBe(3);
  expect(await out(id, 'echo $A')).toBe('1');
  await server.mustRun(['rm', id]);
  expect(await out(copies[0] as string, 'cat /root/d')).toBe('d');
  await server.mustRun(['rm', '--label', 'story']);
});

it('best of N: an example that forks what a process has in memory', async () => {
  const key = (await server.json<{ api_key: string }>(['config'])).api_key;
  const { code, stdout, stderr } = await server.runProgram('examples/best-of-n/run.mjs', ['2', '2'], {
    env: { SANDLOT_API_KEY: key },
    timeoutMs: 200_000,
  });
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^from \d+\.\d+ to \d+\.\d+ in 2 rounds of 2 copies$/m);
  expect(stdout.match(/^ +\* /gm)).toHaveLength(2);
  expect((await server.json<Status>(['status'])).machines).toEqual([]);
});

it('kill -9 of the control plane in a pause: the sandbox is paused or runs, and goes on', async () => {
  const id = await server.lastLine(['create', image, ...small]);
  await out(id, 'echo m > /dev/shm/m');
  const pausing = server.run(['pause', id]).catch(() => undefined);
  const plane = (await server.json<Status>(['status'])).processes.find(
    ({ role }) => role === 'control plane',
  );
  process.kill(plane?.pid as number, 'SIGKILL');
  await pausing;
  await server.up();
  expect(await out(id, 'cat /dev/shm/m')).toBe('m');
  expect(await statusOf(id)).toBe('RUNNING');
  await server.mustRun(['rm', '--label', 'story']);
});
