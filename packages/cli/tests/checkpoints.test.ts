/** `checkpoint`, `create --checkpoint` and `rollback` against a server of the test. */
import { beforeEach, expect, it } from 'vitest';
import type { FakeApi } from './fake-api.js';
import { openForEachTest, type World } from './world.js';

let api: FakeApi;
let world: World;
openForEachTest((made) => {
  ({ api, world } = made);
});

const one = 'abcdefghij234567abcd';
/** Every request about checkpoints, `METHOD path body`. */
let asked: string[];
/** States that the server tells of it, one an answer; the last again and again. */
let states: string[];

function checkpoint() {
  const [state] = states.length > 1 ? states.splice(0, 1) : states;
  return {
    ...{ id: one, sandbox_id: 'abc1', state, depth: 2, docker_image: 'python:3.11-slim', with_memory: true },
    ...{
      own_bytes: 3 * 2 ** 20,
      shared_bytes: 5 * 2 ** 20,
      error: state === 'FAILED' ? 'the disk is full' : null,
    },
    ...{ parent_id: 'before', created_at: new Date().toISOString(), consistency: 'crash', expires_at: null },
  };
}

beforeEach(() => {
  asked = [];
  states = ['DURABLE'];
  api.add('abc1');
  api.intercept = (method, path, body, query) => {
    if (!/checkpoints|rollback/.test(path)) return undefined;
    asked.push(`${method} ${path} ${query.get('id_prefix') ?? ''}${body.toString()}`.trim());
    if (path.endsWith('/rollback')) return { status: 200, body: api.sandboxes[0] };
    if (method === 'DELETE') return { status: 200, body: { success: true, message: '' } };
    if (method === 'POST') return { status: 201, body: checkpoint() };
    if (path.endsWith('/checkpoints')) {
      const isKnown = one.startsWith(query.get('id_prefix') ?? '');
      return { status: 200, body: { checkpoints: isKnown ? [checkpoint()] : [] } };
    }
    return { status: 200, body: checkpoint() };
  };
});

it('create waits until it can be restored, and prints its id', async () => {
  states = ['FROZEN', 'FROZEN', 'DURABLE'];
  const { code, stdout } = await world.run(['checkpoint', 'create', 'abc', '--with-memory', '--ttl', '60']);
  expect([code, stdout]).toEqual([0, `${one}\n`]);
  expect(asked).toEqual([
    'POST /sandbox/abc1/checkpoints {"with_memory":true,"ttl_seconds":60}',
    `GET /sandbox/checkpoints/${one}`,
    `GET /sandbox/checkpoints/${one}`,
  ]);
  const json = await world.run(['checkpoint', 'create', 'abc1', '-o', 'json']);
  expect(JSON.parse(json.stdout)).toMatchObject({ id: one, state: 'DURABLE' });
});

it('create says why it has failed', async () => {
  states = ['FAILED'];
  const { code, stderr } = await world.run(['checkpoint', 'create', 'abc1']);
  expect([code, stderr]).toEqual([1, expect.stringContaining('the disk is full')]);
});

it('ls shows those of a sandbox or all, get one by the beginning of its id', async () => {
  const table = (await world.run(['checkpoint', 'ls', 'abc'])).stdout;
  for (const text of [one, 'abc1', 'DURABLE', 'memory, disk', '3', '5']) expect(table).toContain(text);
  expect((await world.run(['checkpoint', 'ls', '-q'])).stdout).toBe(`${one}\n`);
  expect(asked).toEqual(['GET /sandbox/abc1/checkpoints', 'GET /sandbox/checkpoints']);
  const { stdout } = await world.run(['checkpoint', 'get', 'abcd']);
  for (const text of ['memory and disk', 'before', 'loss of power']) expect(stdout).toContain(text);
  const unknown = await world.run(['checkpoint', 'get', 'zz']);
  expect([unknown.code, unknown.stderr]).toEqual([66, expect.stringContaining('no checkpoint')]);
});

it('rm deletes each that is named', async () => {
  expect((await world.run(['checkpoint', 'rm', one, 'abcd'])).stdout).toBe(`${one}\n${one}\n`);
  expect(asked.filter((text) => text.startsWith('DELETE'))).toHaveLength(2);
  expect(JSON.parse((await world.run(['checkpoint', 'rm', one, '-o', 'json'])).stdout)).toEqual({
    deleted: [one],
  });
});

it('create begins with one: every word belongs to the command', async () => {
  const args = ['--checkpoint', 'abcd', '--no-wait', '--', 'sleep', '5'];
  expect((await world.run(['create', ...args])).code).toBe(0);
  expect(api.creates[0]).toMatchObject({
    checkpoint_id: one,
    start_command: { executable: 'sleep', args: ['5'] },
  });
  expect(api.creates[0]).not.toHaveProperty('docker_image');
  expect(api.pulls).toEqual([]);
  await world.run(['create', '--checkpoint', one, '--restore-memory', '--no-wait']);
  expect(api.creates[1]).toMatchObject({ checkpoint_id: one, restore_memory: true });
});

it('rollback names both, and may leave the memory', async () => {
  expect((await world.run(['rollback', 'abc', one])).stdout).toBe('abc1\n');
  await world.run(['rollback', 'abc1', 'abcd', '--disk-only']);
  expect(asked).toEqual([
    `POST /sandbox/abc1/rollback {"checkpoint_id":"${one}"}`,
    'GET /sandbox/checkpoints abcd',
    `POST /sandbox/abc1/rollback {"checkpoint_id":"${one}","restore_memory":false}`,
  ]);
});
