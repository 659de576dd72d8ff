/** Views as a user of the command line has them, and the example that tells what they are for. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';

let server: TestServer;

beforeAll(async () => {
  server = await TestServer.start();
  await server.mustRun(['image', 'import', pythonArchive, 'python:3.11-slim'], { timeoutMs: 300_000 });
}, 500_000);
afterAll(() => server?.close(), 200_000);

it('a create with a view, commands in it and outside, and what `get` says', async () => {
  const id = await server.lastLine(['create', 'python:3.11-slim', '--memory', '0.5', '--hide', '/srv'], {
    timeoutMs: 400_000,
  });
  await server.mustRun(['run', '--no-view', id, '--', 'sh', '-c', 'echo secret > /srv/data']);
  expect(await server.mustRun(['run', id, '--', 'ls', '-A', '/srv'])).toBe('');
  expect(await server.mustRun(['run', '--no-view', id, '--', 'cat', '/srv/data'])).toBe('secret\n');
  expect(await server.mustRun(['run', '--hide', '/opt', id, '--', 'cat', '/srv/data'])).toBe('secret\n');
  expect(await server.mustRun(['get', id])).toMatch(/^view +sealed; hides \/srv$/m);
  await server.mustRun(['rm', id]);
}, 600_000);

it('a create whose view names what is not in the image ends with that', async () => {
  const args = [
    'create',
    'python:3.11-slim',
    '--memory',
    '0.5',
    '--hide',
    '/srv',
    '--hide',
    '/nowhere/to/see',
  ];
  const { code, stderr } = await server.run(args, { timeoutMs: 400_000 });
  expect(code).toBe(1);
  expect(stderr).toContain('/nowhere/to/see');
  const wrong = await server.run(['create', 'python:3.11-slim', '--hide', 'srv/../x']);
  expect(wrong.code).toBe(64);
  expect(wrong.stderr).toContain('--view hide.0: Must be: an absolute path');
}, 600_000);

/** Plays the example. */
async function playShop(args: string[]) {
  const key = (await server.json<{ api_key: string }>(['config'])).api_key;
  const options = { env: { SANDLOT_API_KEY: key }, timeoutMs: 500_000 };
  return server.runProgram('examples/hidden-shop/run.mjs', args, options);
}

it('the hidden shop: root looks everywhere and finds nothing, a customer is answered', async () => {
  const { code, stdout, stderr } = await playShop([]);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^by HTTP {3}\[.*"a lamp with the number [0-9a-f]{16}"/m);
  expect(stdout).toMatch(/^\d+ ways in vain, by HTTP the answer/m);
}, 600_000);

it('the same behind a mask is found by root, and the story says so', async () => {
  const { code, stdout, stderr } = await playShop(['mask']);
  expect(code).toBe(1);
  expect(stdout).toContain('by HTTP   [');
  expect(stderr).toMatch(/^not as it should be: the agent saw the orders by: .*orders\.json/);
}, 600_000);
