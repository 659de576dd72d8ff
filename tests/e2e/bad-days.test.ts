/** Bad days of a whole server: kills, large transfers, a second server beside it, and the end with `down`. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { carryFile, flatMiB, readSlowly } from '../driver/big-transfers.js';
import { pythonArchive } from '../driver/checkout.js';
import { CrashStory, copySteps, steps } from '../driver/crash-story.js';
import { SeededRandom } from '../driver/seeded-random.js';
import { TestServer } from '../driver/test-server.js';

const image = 'python:3.11-slim';
const small = ['--memory', '0.5', '--disk', '2'];

let server: TestServer;

beforeAll(async () => {
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
});
afterAll(() => server?.close());

it('kill -9 of the control plane and of a machine, in a create, an exec and a delete', async () => {
  const story = await CrashStory.begin(server, image, new SeededRandom(31));
  for (const step of steps) await story.round('control plane', step);
  for (const step of ['create', 'exec'] as const) await story.round('machine', step);
  await story.end();
}, 240_000);

it('the same in a pause, a resume and a fork', async () => {
  const story = await CrashStory.begin(server, image, new SeededRandom(32));
  for (const step of copySteps) await story.round('control plane', step);
  await story.round('machine', 'fork');
  await story.end();
}, 240_000);

it('carries 128 MiB there and back, and holds back 128 MiB of output, in flat memory', async () => {
  const id = await server.lastLine(['create', image, ...small]);
  const grown = [await carryFile(server, id, 128), await readSlowly(server, id, 128)];
  for (const growth of grown) {
    expect(growth['node agent']).toBeLessThan(flatMiB);
    expect(growth['control plane']).toBeLessThan(flatMiB);
  }
  await server.mustRun(['rm', id]);
}, 120_000);

it('a second server on the same host, and down and up of the first, leave all else alone', async () => {
  const id = await server.lastLine(['create', image, ...small, '--name', 'ended-by-down']);
  const other = {
    env: {
      SANDLOT_DATA: join(server.folder, 'other'),
      SANDLOT_URL: 'http://127.0.0.1:7272',
      // Another user: `up` writes its key to the configuration of who calls it.
      HOME: join(server.folder, 'other-home'),
    },
    timeoutMs: 120_000,
  };
  mkdirSync(other.env.HOME);
  await server.up({ listen: '127.0.0.1:7272', ...other });
  try {
    expect(await server.mustRun(['ls', '--output', 'json'], other)).toBe('[]\n');
    expect((await server.run(['get', id], other)).code).not.toBe(0);
    expect(await server.mustRun(['run', id, '--', 'echo', 'beside'])).toBe('beside\n');
    await server.mustRun(['down'], { timeoutMs: 120_000 });
    const status = await server.json<{ processes: unknown[] }>(['status'], other);
    expect(status.processes.length).toBeGreaterThan(1);
    await server.up();
    const images = await server.json<{ reference: string }[]>(['image', 'ls']);
    expect(images.map(({ reference }) => reference)).toEqual([expect.stringContaining(image)]);
    expect(await server.json(['get', id])).toMatchObject({ name: 'ended-by-down', status: 'TERMINATED' });
    // The image is usable without another import.
    expect(await server.mustRun(['run', '--image', image, ...small, '--', 'echo', 'again'])).toBe('again\n');
  } finally {
    await server.mustRun(['down'], other);
  }
}, 180_000);
