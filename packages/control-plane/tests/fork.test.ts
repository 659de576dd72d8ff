/** Forks at the API: what copies are, room counted before, all or none, repetitions. */
import type { ForkedSandboxes, Sandbox } from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { expectField, expectFits, simple, World } from './world.js';

let world: World;
beforeEach(async () => {
  world = await new World().open();
});
afterEach(() => world.close());

/** Another world, whose node offers no more than this. */
async function reopen(offer: World['node']['offer']): Promise<void> {
  await world.close();
  world = new World();
  world.node.offer = offer;
  await world.open();
}

const fork = (id: string, body: object = {}) =>
  world.call<ForkedSandboxes>('POST', `/sandbox/${id}/fork`, { body });
const detailOf = (answer: { body: unknown }) => (answer.body as { detail: string }).detail;

it('makes running copies on the node of the source, each with an id and a token of its own', async () => {
  const source = await world.create({
    labels: ['run=1'],
    environment_vars: { A: '1', B: '2' },
    secrets: { S: 'x' },
  });
  const answer = await fork(source.id, { count: 3, labels: ['group=7'], environment_vars: { B: '3' } });
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  expectFits('forkSandbox', answer.body);
  expect(answer.body.errors).toEqual([]);
  const ids = answer.body.sandboxes.map(({ id }) => id);
  expect(new Set([...ids, source.id]).size).toBe(4);
  for (const copy of answer.body.sandboxes) {
    expect(copy).toMatchObject({ status: 'RUNNING', labels: ['group=7'], nodeId: source.nodeId });
    expect(copy.environmentVars).toEqual({ A: '1', B: '3' });
    const node = world.node.sandboxes.get(copy.id);
    expect(node?.spec).toMatchObject({ hostname: copy.id, secrets: { S: 'x' }, env: { A: '1', B: '3' } });
  }
  expect((await world.get(source.id)).status).toBe('RUNNING');
  const [plain] = (await fork(source.id)).body.sandboxes as [Sandbox];
  expect(plain).toMatchObject({ labels: ['run=1'], timeoutMinutes: source.timeoutMinutes });
});

it('counts the room before: all or none, or those that fit if asked', async () => {
  await reopen({ vcpus: 3, memoryMiB: 1_048_576, diskGiB: 10_000 });
  const source = await world.create();
  const refused = await fork(source.id, { count: 3 });
  expect([refused.status, detailOf(refused)]).toEqual([409, expect.stringMatching(/room for 2 copies/)]);
  expect(world.node.sandboxes.size).toBe(1);
  const partial = await fork(source.id, { count: 3, allow_partial: true });
  expect(partial.body.sandboxes).toHaveLength(2);
  expect(partial.body.errors).toMatchObject([{ index: 2, code: 'CAPACITY' }]);
});

it('a copy that does not start takes the others with it, unless asked for', async () => {
  const source = await world.create();
  world.node.failCopy = 1;
  const failed = await fork(source.id, { count: 3 });
  expect([failed.status, detailOf(failed)]).toEqual([502, expect.stringMatching(/1 of 3 copies/)]);
  await world.eventually(async () => {
    const { body } = await world.call<{ sandboxes: Sandbox[] }>('GET', '/sandbox?is_active=true');
    return body.sandboxes.length === 1;
  });
  world.node.failCopy = 1;
  const partial = await fork(source.id, { count: 3, allow_partial: true });
  expect(partial.body.sandboxes).toHaveLength(2);
  expect(partial.body.errors).toMatchObject([{ index: 1, code: 'START_FAILED' }]);
});

it('a node that cannot save the source leaves no copy and no room booked', async () => {
  const source = await world.create();
  world.node.refuseFork = { status: 507, body: { code: 'no-space', message: 'the disk is full' } };
  const failed = await fork(source.id, { count: 2 });
  expect([failed.status, detailOf(failed)]).toEqual([507, expect.stringMatching(/the disk is full/)]);
  await world.eventually(async () => {
    const { body } = await world.call<{ sandboxes: Sandbox[] }>('GET', '/sandbox?is_active=true');
    return body.sandboxes.length === 1;
  });
  expect((await world.get(source.id)).status).toBe('RUNNING');
});

it('the same key makes no second fork; another body with it is refused', async () => {
  const source = await world.create();
  const body = { count: 2, idempotency_key: 'k1' };
  const first = (await fork(source.id, body)).body.sandboxes.map(({ id }) => id);
  expect((await fork(source.id, body)).body.sandboxes.map(({ id }) => id)).toEqual(first);
  expect((await fork(source.id, { ...body, labels: ['x'] })).status).toBe(409);
});

it('only what runs, and is one’s own, is forked', async () => {
  const source = await world.create();
  const other = await world.makeKey('somebody');
  expect((await world.call('POST', `/sandbox/${source.id}/fork`, { key: other })).status).toBe(404);
  await world.call('POST', `/sandbox/${source.id}/pause`);
  const paused = await fork(source.id);
  expect([paused.status, detailOf(paused)]).toEqual([409, expect.stringMatching(/it is paused/)]);
  world.node.autoRun = false;
  const { id } = (await world.call<Sandbox>('POST', '/sandbox', { body: simple })).body;
  const starting = await fork(id);
  expect([starting.status, detailOf(starting)]).toEqual([
    409,
    expect.stringMatching(/it is (pending|starting)/),
  ]);
  world.node.gate = async (kind) => {
    if (kind === 'remove') throw new Error('the test says no');
  };
  await world.call('DELETE', `/sandbox/${id}`);
  const stopping = await fork(id);
  expect([stopping.status, detailOf(stopping)]).toEqual([409, expect.stringMatching(/it is stopping/)]);
  expectField(await fork(source.id, { count: 65 }), 'count');
  expectField(await fork(source.id, { timeout_minutes: 0 }), 'timeout_minutes');
});

it('copies of a fork that was cut off with the control plane end, and free their room', async () => {
  const source = await world.create();
  const asked = world.node.hangAt('fork');
  fork(source.id, { count: 2 }).catch(() => undefined);
  await asked;
  await world.node.stop();
  await world.stopPlane();
  world.node.gate = async () => undefined;
  await world.node.start();
  await world.startPlane();
  await world.inStep();
  await world.eventually(async () => {
    await world.reconcile();
    const { body } = await world.call<{ sandboxes: Sandbox[] }>('GET', '/sandbox?is_active=true');
    return body.sandboxes.length === 1;
  });
});

it('says so when the node is away, and not that there is no room', async () => {
  const source = await world.create();
  await world.node.stop();
  await world.eventually(async () => {
    const answer = await fork(source.id);
    expect(answer.status).toBe(503);
    return detailOf(answer).includes('its node cannot be reached');
  });
});
