/** A disk without room under database and log: changes are refused at once, reading goes on, and all is well again with room. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ErrorBody, Sandbox, SandboxList } from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { FakeNode } from './fake-node.js';
import { send, simple } from './world.js';

const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));
const isRoot = process.getuid?.() === 0;

let folder: string;
let disk: string;
let node: FakeNode;
let plane: ChildProcess | undefined;

beforeEach(async () => {
  if (!isRoot) return;
  folder = mkdtempSync(join(tmpdir(), 'sandlot-full-'));
  disk = join(folder, 'disk');
  mkdirSync(disk);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'sandlot-test', disk]);
  node = new FakeNode(join(folder, 'node.sock'));
  await node.start();
});
afterEach(async () => {
  if (!isRoot) return;
  if (plane !== undefined && plane.exitCode === null) {
    const ended = new Promise((resolve) => plane?.once('exit', resolve));
    plane.kill('SIGKILL');
    await ended;
  }
  await node.stop();
  execFileSync('umount', [disk]);
  rmSync(folder, { recursive: true, force: true });
});

async function startPlane(): Promise<string> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  const flags = {
    data: join(disk, 'data'),
    keys: join(folder, 'keys'),
    listen: `127.0.0.1:${port}`,
    'node-socket': node.socketPath,
    'admin-socket': join(folder, 'admin.sock'),
    'ready-file': join(folder, 'ready.json'),
    'log-level': 'debug',
  };
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
  const log = openSync(join(disk, 'log'), 'a');
  const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', log, 'inherit'] });
  closeSync(log);
  plane = child;
  const until = Date.now() + 20_000;
  while (!existsSync(flags['ready-file'])) {
    if (Date.now() > until || child.exitCode !== null)
      throw new Error(`the control plane did not start (exit ${child.exitCode}); is it built?`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return `http://127.0.0.1:${port}/api/v1`;
}

/** Writes until there is no room for another byte. */
function fill(file: string): void {
  const ballast = openSync(file, 'a');
  for (const size of [65_536, 1]) {
    try {
      for (;;) writeSync(ballast, Buffer.alloc(size, 'b'));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
  }
  closeSync(ballast);
}

it.skipIf(!isRoot)('is survived, and said', { timeout: 60_000 }, async () => {
  const api = await startPlane();
  const admin = { body: { user: 'admin' } };
  const { body: made } = await send<{ key: string }>(
    '/api/v1/keys',
    'POST',
    admin,
    join(folder, 'admin.sock'),
  );
  const call = <T>(method: string, path: string, body?: unknown) =>
    send<T>(api + path, method, { key: made.key, body });
  const body = { ...simple, memory_gb: 0.25, disk_size_gb: 1 };
  expect((await call('POST', '/sandbox?wait=5', body)).status).toBe(201);

  const ballast = join(disk, 'ballast');
  fill(ballast);
  // What the files had allocated already takes a little more; a file system gives whole pages.
  const begun = Date.now();
  let refused = await call<ErrorBody>('POST', '/sandbox?wait=5', body);
  for (let more = 0; more < 20 && refused.status === 201; more++)
    refused = await call<ErrorBody>('POST', '/sandbox?wait=5', body);
  expect(refused).toMatchObject({ status: 507, body: { code: 'STORAGE_FULL' } });
  // A key that was never used: noting its use cannot be written.
  for (let count = 0; count < 300; count++)
    if ((await call<SandboxList>('GET', '/sandbox')).status !== 200) throw new Error('a read was refused');
  expect((await call('POST', '/sandbox', body)).status).toBe(507);
  expect(Date.now() - begun).toBeLessThan(30_000);
  expect(plane?.exitCode).toBeNull();

  rmSync(ballast);
  const { status, body: sandbox } = await call<Sandbox>('POST', '/sandbox?wait=5', body);
  expect({ status, state: sandbox.status }).toEqual({ status: 201, state: 'RUNNING' });
  expect((await call('DELETE', `/sandbox/${sandbox.id}`)).status).toBe(200);
  await expect
    .poll(() => readFileSync(join(disk, 'log'), 'utf8'), { timeout: 10_000 })
    .toContain('"lostLines":');
});
