/** The product as its user meets it: the three commands, accounts, errors, lists, and a bad day of the daemons. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';

let server: TestServer;
let key: string;
let id: string;

const image = 'python:3.11-slim';
const small = ['--memory', '0.5', '--disk', '2'];

interface Status {
  processes: { pid: number; role: string }[];
  machines: { id: string; pid: number }[];
  accelerator: string;
  counts: { running: number };
}
interface ApiError {
  detail: string;
  code: string;
  errors: { param: string; details: string }[];
}

beforeAll(async () => {
  // As a user's: with the look for KVM.
  server = await TestServer.start({ kvm: 'auto' });
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
});
afterAll(() => server?.close());

it('create, run, upload: the three commands of the product', async () => {
  id = await server.lastLine(['create', image, ...small, '--label', 'story', '--env', 'A=b']);
  expect(id).toMatch(/^[a-z][a-z2-7]{19}$/);
  expect(await server.mustRun(['run', id, '--', 'python3', '-c', "print('hello')"])).toBe('hello\n');
  const local = join(server.folder, 'agent.py');
  writeFileSync(local, 'import os; print("agent", os.environ["A"])\n');
  await server.mustRun(['upload', id, local, '/root/agent.py']);
  expect(await server.mustRun(['run', id, '--', 'python3', '/root/agent.py'])).toBe('agent b\n');
  const back = join(server.folder, 'back.py');
  await server.mustRun(['download', id, '/root/agent.py', back]);
  expect(readFileSync(back, 'utf8')).toBe(readFileSync(local, 'utf8'));
});

it('passes exit codes, streams and input through', async () => {
  const line = ['run', id, '--', '/bin/sh', '-c', 'echo out; echo err >&2; exit 7'];
  expect(await server.run(line)).toEqual({ code: 7, stdout: 'out\n', stderr: 'err\n' });
  expect(await server.mustRun(['run', '-i', id, '--', 'tr', 'a-z', 'A-Z'], { stdin: 'loud' })).toBe('LOUD');
  expect((await server.run(['run', id, '--', 'nosuchprogram'])).code).toBe(127);
  expect(await server.mustRun(['run', id.slice(0, 8), '--', 'echo', 'prefix'])).toBe('prefix\n');
});

it('run --image leaves no sandbox behind', async () => {
  expect(await server.mustRun(['run', '--image', image, ...small, '--', 'echo', 'once'])).toBe('once\n');
  expect((await server.json<Status>(['status'])).machines).toHaveLength(1);
});

describe('the API', () => {
  it('refuses a wrong key, and none', async () => {
    for (const wrong of ['', 'wrong', `${key}x`]) {
      const answer = await server.ask<ApiError>('GET', '/sandbox', wrong);
      expect(answer).toMatchObject({ status: 401, body: { code: 'UNAUTHENTICATED' } });
    }
  });

  it('shows nothing of a sandbox to another user', async () => {
    await server.mustRun(['user', 'create', 'eve']);
    const { key: eve } = await server.json<{ key: string }>(['key', 'create', '--user', 'eve']);
    for (const [method, path] of [
      ['GET', `/sandbox/${id}`],
      ['DELETE', `/sandbox/${id}`],
      ['POST', `/sandbox/${id}/auth`],
      ['GET', `/sandbox/${id}/logs`],
    ] as const) {
      expect(await server.ask(method, path, eve)).toMatchObject({ status: 404 });
    }
    expect((await server.ask<{ sandboxes: unknown[] }>('GET', '/sandbox', eve)).body.sandboxes).toEqual([]);
  });

  it.each([
    ['cpu_cores', { cpu_cores: 1000 }],
    ['memory_gb', { memory_gb: 0 }],
    ['disk_size_gb', { disk_size_gb: 5000 }],
    ['timeout_minutes', { timeout_minutes: 0 }],
  ])('names the field %s that is out of range', async (field, body) => {
    const answer = await server.ask<ApiError>('POST', '/sandbox', key, {
      name: 'x',
      docker_image: image,
      ...body,
    });
    expect(answer.status).toBe(422);
    expect(answer.body.errors.map(({ param }) => param)).toContain(field);
  });

  it('makes one sandbox of the same idempotency key twice at once', async () => {
    const body = {
      name: 'twin',
      docker_image: image,
      memory_gb: 0.5,
      disk_size_gb: 2,
      idempotency_key: 'twins-1',
    };
    const twins = await Promise.all(
      [1, 2].map(() => server.ask<{ id: string }>('POST', '/sandbox?wait=30', key, body)),
    );
    expect(new Set(twins.map((twin) => twin.body.id)).size).toBe(1);
    expect(twins.every(({ status }) => status < 300)).toBe(true);
    const other = await server.ask<ApiError>('POST', '/sandbox', key, { ...body, name: 'changed' });
    expect(other).toMatchObject({ status: 409, body: { code: 'IDEMPOTENCY_MISMATCH' } });
    const twin = `/sandbox/${twins[0]?.body.id}`;
    expect((await server.ask('DELETE', twin, key)).status).toBe(200);
    expect((await server.ask('DELETE', twin, key)).status).toBe(404);
  });

  it('tells why a sandbox has failed', async () => {
    const body = { name: 'lost', docker_image: '127.0.0.1:9/no/such:1', memory_gb: 0.5, disk_size_gb: 2 };
    const { body: made } = await server.ask<{ id: string }>('POST', '/sandbox?wait=60', key, body);
    const context = await server.ask<{ errorMessage: string }>(
      'GET',
      `/sandbox/${made.id}/error-context`,
      key,
    );
    expect(context.body).toMatchObject({ status: 'ERROR', errorType: 'IMAGE_PULL_FAILED' });
    expect(context.body.errorMessage).toContain('127.0.0.1:9');
  });
});

it('lists by label, and shows timings of each stage', async () => {
  const listed = await server.json<{ id: string }[]>(['ls', '--label', 'story']);
  expect(JSON.stringify(listed)).toContain(id);
  expect(JSON.stringify(await server.json(['ls', '--label', 'other']))).not.toContain(id);
  const { timings } = await server.json<{ timings: Record<string, number> }>(['get', id]);
  expect(Object.keys(timings)).toEqual(
    expect.arrayContaining(['image', 'disk', 'restore', 'mount', 'ready']),
  );
});

it('after kill -9 of both daemons, up adopts what ran, and reports what died meanwhile', async () => {
  const doomed = await server.lastLine(['create', image, ...small]);
  const before = await server.json<Status>(['status']);
  expect(before.processes.map(({ role }) => role).sort()).toEqual(
    expect.arrayContaining(['control plane', 'node agent']),
  );
  for (const { pid, role } of before.processes) {
    if (role === 'control plane' || role === 'node agent') process.kill(pid, 'SIGKILL');
  }
  process.kill(before.machines.find((machine) => machine.id === doomed)?.pid as number, 'SIGKILL');
  await server.up();
  expect(await server.mustRun(['run', id, '--', 'python3', '/root/agent.py'])).toBe('agent b\n');
  const after = await server.json<Status>(['status']);
  expect(after.machines).toEqual(before.machines.filter((machine) => machine.id === id));
  expect(await server.json(['get', doomed])).toMatchObject({ status: 'ERROR', errorType: 'MACHINE_ENDED' });
});

it('removes by label', async () => {
  await server.mustRun(['rm', '--label', 'story']);
  expect((await server.json<Status>(['status'])).machines).toEqual([]);
  expect((await server.run(['run', id, '--', 'true'])).code).not.toBe(0);
});
