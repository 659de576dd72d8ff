/**
 * Large uploads, downloads and outputs through a whole server, with an eye on the memory of everything that
 * they pass through. Told by `tests/e2e` in short, by `tests/long` in full.
 */
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, createReadStream, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { processesWith, residentMiB } from './leftovers.js';
import type { TestServer } from './test-server.js';

/** What a daemon may grow by, whatever is carried: buffers and what the garbage collector has not yet had. */
export const flatMiB = 64;

/** Largest growth of each daemon, MiB. */
export type Growth = Record<'node agent' | 'control plane', number>;

/** Uploads a file of random bytes, downloads it, and compares. */
export async function carryFile(server: TestServer, id: string, mebibytes: number): Promise<Growth> {
  const [local, back] = [join(server.folder, 'big'), join(server.folder, 'big.back')];
  writeRandom(local, mebibytes);
  const watch = watchDaemons(server);
  try {
    await server.mustRun(['upload', id, local, '/root/big'], { timeoutMs: 900_000 });
    await server.mustRun(['download', id, '/root/big', back], { timeoutMs: 900_000 });
    const [sent, got] = [await hashOf(local), await hashOf(back)];
    if (sent !== got) throw new Error(`${mebibytes} MiB came back changed`);
    await server.mustRun(['run', id, '--', 'rm', '/root/big']);
  } finally {
    watch.stop();
    rmSync(local, { force: true });
    rmSync(back, { force: true });
  }
  return watch.growth;
}

/** A command that prints much to a reader that reads nothing for a while: it must wait, and then be complete. */
export async function readSlowly(server: TestServer, id: string, mebibytes: number): Promise<Growth> {
  const bytes = mebibytes * 2 ** 20;
  const watch = watchDaemons(server);
  const child = server.spawn(['run', id, '--', 'head', '-c', String(bytes), '/dev/zero']);
  try {
    const stdout = child.stdout as NonNullable<typeof child.stdout>;
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
    await pause(4_000);
    const running = await server.run(['run', id, '--', 'pgrep', '-c', '-x', 'head']);
    if (running.stdout.trim() !== '1') throw new Error('the command did not wait for its reader');
    let read = 0;
    for await (const chunk of stdout) read += (chunk as Buffer).length;
    const code = await ended;
    if (code !== 0 || read !== bytes)
      throw new Error(`it ended with ${code} after ${read} bytes of ${bytes}`);
  } finally {
    child.kill('SIGKILL');
    watch.stop();
  }
  return watch.growth;
}

function watchDaemons(server: TestServer): { growth: Growth; stop(): void } {
  const pidOf = (main: string) =>
    processesWith(server.data).find(({ commandLine }) => commandLine.includes(`${main}/dist/main.js`))?.pid ??
    0;
  const pids = { 'node agent': pidOf('node-agent'), 'control plane': pidOf('control-plane') };
  const roles = Object.keys(pids) as (keyof Growth)[];
  const before = roles.map((role) => residentMiB(pids[role]));
  const growth: Growth = { 'node agent': 0, 'control plane': 0 };
  const timer = setInterval(() => {
    roles.forEach((role, n) => {
      growth[role] = Math.max(growth[role], Math.round(residentMiB(pids[role]) - (before[n] ?? 0)));
    });
  }, 100);
  return { growth, stop: () => clearInterval(timer) };
}

function writeRandom(path: string, mebibytes: number): void {
  const file = openSync(path, 'w');
  try {
    for (let n = 0; n < mebibytes; n++) writeSync(file, randomBytes(2 ** 20));
  } finally {
    closeSync(file);
  }
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 2 ** 20 })) hash.update(chunk as Buffer);
  return hash.digest('hex');
}
