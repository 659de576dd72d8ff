/** A disk without room under database and log: changes are refused at once, reading goes on, and all is well again with room. */
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { ErrorBody, Sandbox, SandboxList } from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { PlaneProcess } from './plane-process.js';
import { simple } from './world.js';

const isRoot = process.getuid?.() === 0;

let plane: PlaneProcess;
let disk: string;
beforeEach(async () => {
  if (!isRoot) return;
  plane = new PlaneProcess();
  disk = join(plane.folder, 'disk');
  mkdirSync(disk);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'sandlot-test', disk]);
  await plane.node.start();
});
afterEach(async () => {
  if (!isRoot) return;
  await plane.end('SIGKILL');
  execFileSync('umount', [disk]);
  await plane.close();
});

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
  await plane.start({ data: join(disk, 'data'), log: join(disk, 'log') });
  await plane.makeKey();
  const body = { ...simple, memory_gb: 0.25, disk_size_gb: 1 };
  expect((await plane.call('POST', '/sandbox?wait=5', body)).status).toBe(201);

  const ballast = join(disk, 'ballast');
  fill(ballast);
  // What the files had allocated already takes a little more; a file system gives whole pages.
  const begun = Date.now();
  let refused = await plane.call<ErrorBody>('POST', '/sandbox?wait=5', body);
  for (let more = 0; more < 20 && refused.status === 201; more++)
    refused = await plane.call<ErrorBody>('POST', '/sandbox?wait=5', body);
  expect(refused).toMatchObject({ status: 507, body: { code: 'STORAGE_FULL' } });
  // A key that was never used: noting its use cannot be written.
  for (let count = 0; count < 300; count++)
    if ((await plane.call<SandboxList>('GET', '/sandbox')).status !== 200)
      throw new Error('a read was refused');
  expect((await plane.call('POST', '/sandbox', body)).status).toBe(507);
  expect(Date.now() - begun).toBeLessThan(30_000);
  expect(plane.isRunning).toBe(true);

  rmSync(ballast);
  const { status, body: sandbox } = await plane.call<Sandbox>('POST', '/sandbox?wait=5', body);
  expect({ status, state: sandbox.status }).toEqual({ status: 201, state: 'RUNNING' });
  expect((await plane.call('DELETE', `/sandbox/${sandbox.id}`)).status).toBe(200);
  await expect
    .poll(() => readFileSync(join(disk, 'log'), 'utf8'), { timeout: 10_000 })
    .toContain('"lostLines":');
});
