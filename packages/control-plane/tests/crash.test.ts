import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Sandbox, SandboxList } from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { FakeNode } from './fake-node.js';
import { send, simple } from './world.js';

/** The built process: what is killed must be a process of its own. */
const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));

let folder: string;
let node: FakeNode;
let plane: ChildProcess | undefined;
let address = '';
let key = '';

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'sandlot-crash-'));
  node = new FakeNode(join(folder, 'node.sock'));
  await node.start();
});
afterEach(async () => {
  await killPlane();
  await node.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function startPlane(): Promise<void> {
  const ready = join(folder, 'ready.json');
  rmSync(ready, { force: true });
  const port = await findPort();
  address = `http://127.0.0.1:${port}`;
  const args = [
    '--data',
    join(folder, 'data'),
    '--keys',
    join(folder, 'keys'),
    '--listen',
    `127.0.0.1:${port}`,
  ];
  args.push(
    '--node-socket',
    node.socketPath,
    '--admin-socket',
    join(folder, 'admin.sock'),
    '--ready-file',
    ready,
  );
  const child = spawn(process.execPath, [main, ...args, '--log-level', 'silent'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  plane = child;
  const until = Date.now() + 20_000;
  while (!existsSync(ready)) {
    if (Date.now() > until || child.exitCode !== null)
      throw new Error(`the control plane did not start (exit ${child.exitCode}); is it built?`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(JSON.parse(readFileSync(ready, 'utf8'))).toMatchObject({ pid: child.pid, version: '0.1.0' });
}

/** A port that was free a moment ago. */
async function findPort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

async function killPlane(): Promise<void> {
  const child = plane;
  plane = undefined;
  if (child === undefined) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}

function call<T>(method: string, path: string, body?: unknown) {
  return send<T>(`${address}/api/v1${path}`, method, { key, body });
}

/** A seeded generator (Park and Miller), so that a failure can be repeated. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

it('SIGTERM ends it at once and removes its socket; the admin socket gives the first key', {
  timeout: 60_000,
}, async () => {
  await startPlane();
  const made = await send<{ key: string }>(
    '/api/v1/keys',
    'POST',
    { body: { user: 'admin' } },
    join(folder, 'admin.sock'),
  );
  expect(made.status).toBe(201);
  const child = plane as ChildProcess;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  expect(await ended).toBe(0);
  plane = undefined;
  expect(existsSync(join(folder, 'admin.sock'))).toBe(false);
});

it('kill -9 at any moment: what was answered holds, nothing is left over', { timeout: 120_000 }, async () => {
  const random = randomFrom(20_261_130);
  await startPlane();
  key = (
    await send<{ key: string }>(
      '/api/v1/keys',
      'POST',
      { body: { user: 'admin' } },
      join(folder, 'admin.sock'),
    )
  ).body.key;
  const created = new Set<string>();
  const deleted = new Set<string>();
  let counter = 0;
  for (let round = 0; round < 6; round++) {
    let stopping = false;
    const worker = async () => {
      while (!stopping) {
        const idempotency_key = `k${counter++}`;
        const body = { ...simple, memory_gb: 0.25, disk_size_gb: 1, idempotency_key };
        const made = await call<Sandbox>('POST', '/sandbox?wait=0', body).catch(() => undefined);
        if (made === undefined) return;
        created.add(made.body.id);
        if (random() < 0.4) continue;
        const gone = await call('DELETE', `/sandbox/${made.body.id}`).catch(() => undefined);
        if (gone === undefined) return;
        expect(gone.status).toBe(200);
        deleted.add(made.body.id);
      }
    };
    const workers = Array.from({ length: 4 }, worker);
    // The first rounds kill within the very first creates, the later ones in the middle of many.
    await new Promise((resolve) => setTimeout(resolve, 30 + random() * 200 * round));
    await killPlane();
    stopping = true;
    await Promise.all(workers);
    await startPlane();
  }
  expect(created.size).toBeGreaterThan(10);
  const settled = async () => {
    const live: Sandbox[] = [];
    for (let page = 1, more = true; more; page++) {
      const { body } = await call<SandboxList>('GET', `/sandbox?is_active=true&per_page=1000&page=${page}`);
      live.push(...body.sandboxes);
      more = body.has_next;
    }
    const onNode = [...node.sandboxes.values()]
      .filter(({ report }) => report.state === 'running')
      .map(({ spec }) => spec.sandboxId);
    const agree = JSON.stringify(live.map(({ id }) => id).sort()) === JSON.stringify(onNode.sort());
    return agree && live.every(({ status }) => status === 'RUNNING') ? live : undefined;
  };
  const until = Date.now() + 30_000;
  let live = await settled();
  while (live === undefined) {
    if (Date.now() > until) throw new Error('records and node never agreed');
    await new Promise((resolve) => setTimeout(resolve, 100));
    live = await settled();
  }
  const liveIds = new Set(live.map(({ id }) => id));
  for (const id of deleted) expect(liveIds.has(id)).toBe(false);
  for (const id of created) expect((await call('GET', `/sandbox/${id}`)).status).toBe(200);
  // Created and answered, and no delete of it was ever answered: it lives, unless its delete was cut off after it was recorded.
  for (const id of [...created].filter((one) => !deleted.has(one) && !liveIds.has(one)))
    expect((await call<Sandbox>('GET', `/sandbox/${id}`)).body.terminationReason).toBe('DELETED');
  const { body } = await call<{ nodes: { reserved: { vcpus: number; memoryMiB: number } }[] }>(
    'GET',
    '/status',
  );
  expect(body.nodes[0]?.reserved).toMatchObject({ vcpus: live.length, memoryMiB: live.length * 256 });
});
