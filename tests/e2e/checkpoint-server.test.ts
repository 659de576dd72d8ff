/** Checkpoints as a user has them: the command line, the SDK's and Prime's forms, whole servers that are killed. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Checkpoint, Sandbox } from '@sandlot/protocol';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';

vi.setConfig({ testTimeout: 240_000 });

const image = 'python:3.11-slim';
const small = ['--memory', '0.5', '--disk', '2', '--label', 'story'];

let server: TestServer;
let key: string;

beforeAll(async () => {
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
  key = (await server.json<{ api_key: string }>(['config'])).api_key;
});
afterAll(() => server?.close());

interface Status {
  processes: { pid: number; role: string }[];
  machines: { id: string; pid: number }[];
}

const out = async (id: string, line: string) =>
  (await server.mustRun(['run', id, '--', '/bin/sh', '-c', line])).trim();
const snapshots = () => readdirSync(join(server.data, 'node/snapshots'));
const killAll = async () => {
  for (const { pid } of (await server.json<Status>(['status'])).processes) process.kill(pid, 'SIGKILL');
  await server.up();
};

it('memory checkpoint, rollback, a new sandbox from it, a restart of everything in between', async () => {
  const id = await server.lastLine(['create', image, ...small, '--env', 'A=1', '--secret', 'B=2']);
  await out(id, 'echo one > /root/s; echo one > /dev/shm/s');
  const made = await server.json<Checkpoint>(['checkpoint', 'create', id, '--with-memory']);
  expect(made).toMatchObject({ state: 'DURABLE', with_memory: true, sandbox_id: id, depth: 0, error: null });
  await out(id, 'echo two > /root/s; echo two > /dev/shm/s');
  expect(await server.lastLine(['rollback', id, made.id.slice(0, 6)])).toBe(id);
  expect(await out(id, 'cat /root/s /dev/shm/s')).toBe('one\none');
  expect(await server.json<Sandbox>(['get', id])).toMatchObject({
    status: 'RUNNING',
    generation: 2,
    checkpointId: made.id,
  });
  const next = await server.json<Checkpoint>(['checkpoint', 'create', id]);
  expect(next).toMatchObject({
    parent_id: made.id,
    depth: 1,
    with_memory: false,
    consistency: 'application',
  });
  await killAll();
  await server.mustRun(['rm', id]);
  const listed = await server.json<Checkpoint[]>(['checkpoint', 'ls', id]);
  expect(listed.map((one) => one.id)).toEqual([made.id, next.id]);
  const child = await server.lastLine([
    ...['create', '--checkpoint', made.id, '--restore-memory', '--label', 'story'],
  ]);
  expect(await out(child, 'cat /dev/shm/s; echo $A $B; hostname')).toBe(`one\n1 2\n${child}`);
  expect(await server.lastLine(['rollback', child, made.id])).toBe(child);
  expect(await out(child, 'cat /dev/shm/s; hostname')).toBe(`one\n${child}`);
  const booted = await server.lastLine([
    'create',
    '--checkpoint',
    next.id,
    '--label',
    'story',
    '--env',
    'A=3',
  ]);
  expect(await out(booted, 'cat /root/s; ls /dev/shm; echo $A $B')).toBe('one\n3 2');
  const fork = await server.lastLine(['fork', booted, '--label', 'story']);
  expect(await out(fork, 'cat /root/s')).toBe('one');
  await server.mustRun(['checkpoint', 'rm', made.id, next.id]);
  expect(await server.json<Checkpoint[]>(['checkpoint', 'ls'])).toEqual([]);
  await server.mustRun(['pause', child]);
  const asleep = await server.json<Checkpoint>(['checkpoint', 'create', child, '--with-memory']);
  expect(asleep).toMatchObject({ state: 'DURABLE', consistency: 'crash', with_memory: true });
  expect((await server.json<Sandbox>(['get', child])).status).toBe('PAUSED');
  await server.mustRun(['checkpoint', 'rm', asleep.id]);
  expect(await out(child, 'cat /dev/shm/s')).toBe('one');
  await server.mustRun(['rm', '--label', 'story']);
  expect(snapshots()).toEqual([]);
});

it('what cannot be restored is refused with the reason; its own time ends one', async () => {
  const id = await server.lastLine(['create', image, ...small]);
  const { id: disk } = await server.json<Checkpoint>(['checkpoint', 'create', id]);
  const noMemory = await server.run(['create', '--checkpoint', disk, '--restore-memory']);
  expect([noMemory.code, noMemory.stderr]).toEqual([73, expect.stringContaining('has no memory')]);
  const both = await server.ask<{ detail: string }>('POST', '/sandbox', key, {
    name: 'x',
    docker_image: image,
    checkpoint_id: disk,
  });
  expect([both.status, both.body.detail]).toEqual([422, expect.stringContaining('docker_image')]);
  const other = await server.lastLine(['create', image, ...small]);
  const foreign = await server.run(['rollback', other, disk]);
  expect([foreign.code, foreign.stderr]).toEqual([73, expect.stringContaining(`is of sandbox ${id}`)]);
  const brief = await server.json<Checkpoint>(['checkpoint', 'create', id, '--ttl', '2']);
  expect(brief.expires_at).not.toBeNull();
  await pause(2_100);
  expect((await server.run(['checkpoint', 'get', brief.id])).code).toBe(66);
  await server.mustRun(['rm', '--label', 'story']);
  await server.mustRun(['checkpoint', 'rm', disk]);
  await vi.waitFor(() => expect(snapshots()).toEqual([]), { timeout: 20_000, interval: 500 });
});

it('in Prime’s form: no body, polled by batchGet until DURABLE, a create with its id', async () => {
  const id = await server.lastLine(['create', image, ...small]);
  await out(id, 'echo one > /root/s');
  const made = await server.ask<Checkpoint>('POST', `/sandbox/${id}/checkpoints`, key);
  expect(made.status).toBe(201);
  const poll = () =>
    server.ask<{ checkpoints: Checkpoint[]; errors: { code: string }[] }>(
      'POST',
      '/sandbox/checkpoints:batchGet',
      key,
      { checkpoint_ids: [made.body.id, 'nosuch'] },
    );
  await vi.waitFor(async () => expect((await poll()).body.checkpoints[0]?.state).toBe('DURABLE'), {
    timeout: 30_000,
    interval: 200,
  });
  expect((await poll()).body.errors).toMatchObject([{ checkpoint_id: 'nosuch', code: 'NOT_FOUND' }]);
  const created = await server.ask<Sandbox>('POST', '/sandbox?wait=60', key, {
    ...{ name: 'restored', checkpoint_id: made.body.id, cpu_cores: 1, memory_gb: 0.5, gpu_count: 0 },
    ...{ labels: ['story'], timeout_minutes: 60 },
  });
  expect(created).toMatchObject({ status: 201, body: { status: 'RUNNING', dockerImage: image } });
  expect(await out(created.body.id, 'cat /root/s')).toBe('one');
  const deleted = await server.ask<{ deleted: string[] }>('DELETE', `/sandbox/${id}/checkpoints`, key);
  expect(deleted.body).toEqual({ deleted: [made.body.id], errors: [] });
  await server.mustRun(['rm', '--label', 'story']);
  expect(snapshots()).toEqual([]);
});

it('kill -9 of the control plane while it saves: the checkpoint is DURABLE or FAILED, the sandbox runs on', async () => {
  const id = await server.lastLine(['create', image, ...small]);
  await out(id, 'echo m > /dev/shm/m');
  for (const delayMs of [150, 450]) {
    const saving = server.run(['checkpoint', 'create', id, '--with-memory']).catch(() => undefined);
    await pause(delayMs);
    const { processes } = await server.json<Status>(['status']);
    process.kill(processes.find(({ role }) => role === 'control plane')?.pid as number, 'SIGKILL');
    await saving;
    await server.up();
    await vi.waitFor(
      async () => {
        const found = await server.json<Checkpoint[]>(['checkpoint', 'ls', id]);
        for (const { state, error } of found)
          expect([state, error === null]).toEqual([
            expect.stringMatching(/^(DURABLE|FAILED)$/),
            state === 'DURABLE',
          ]);
      },
      { timeout: 30_000, interval: 500 },
    );
    expect(await out(id, 'cat /dev/shm/m')).toBe('m');
  }
  await server.ask('DELETE', `/sandbox/${id}/checkpoints`, key);
  await server.mustRun(['rm', '--label', 'story']);
  await vi.waitFor(() => expect(snapshots()).toEqual([]), { timeout: 120_000, interval: 1_000 });
});
