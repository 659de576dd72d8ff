/** Checkpoints and rollbacks at the API: states, owners, what a create from one has, refusals, and what a dead control plane leaves. */
import type {
  BatchCheckpoints,
  Checkpoint,
  CheckpointList,
  DeletedCheckpoints,
  Sandbox,
} from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { expectField, expectFits, World } from './world.js';

let world: World;
beforeEach(async () => {
  world = await new World().open();
});
afterEach(() => world.close());

const detailOf = (answer: { body: unknown }) => (answer.body as { detail: string }).detail;
const begin = (id: string, body?: object) =>
  world.call<Checkpoint>('POST', `/sandbox/${id}/checkpoints`, body === undefined ? {} : { body });
const look = async (id: string) => (await world.call<Checkpoint>('GET', `/sandbox/checkpoints/${id}`)).body;
const make = async (id: string, body?: object): Promise<Checkpoint> => {
  const answer = await begin(id, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  expectFits('createCheckpoint', answer.body);
  await world.eventually(async () => (await look(answer.body.id)).state === 'DURABLE');
  return look(answer.body.id);
};
const createFrom = (body: object) =>
  world.call<Sandbox>('POST', '/sandbox?wait=10', { body: { name: 'from', ...body } });
const rollback = (id: string, body: object) =>
  world.call<Sandbox>('POST', `/sandbox/${id}/rollback`, { body });

it('is made, listed and deleted, one after the other', async () => {
  const { id } = await world.create();
  const first = await make(id);
  expect(first).toMatchObject({
    ...{ sandbox_id: id, parent_id: null, depth: 0, with_memory: false, consistency: 'application' },
    ...{ stored_bytes: 1100, occupied_bytes: 100, own_bytes: 100, shared_bytes: 1000, error: null },
    ...{ docker_image: 'python:3.11-slim', disk_size_bytes: 10 * 2 ** 30, expires_at: null },
  });
  const second = await make(id, { with_memory: true });
  expect(second).toMatchObject({ parent_id: first.id, depth: 1, with_memory: true, consistency: 'crash' });
  const list = await world.call<CheckpointList>('GET', `/sandbox/${id}/checkpoints`);
  expectFits('listCheckpoints', list.body);
  expect(list.body.checkpoints.map((one) => one.id)).toEqual([first.id, second.id]);
  const only = await world.call<CheckpointList>(
    'GET',
    `/sandbox/${id}/checkpoints?checkpoint_id=${second.id}`,
  );
  expect(only.body.checkpoints.map((one) => one.id)).toEqual([second.id]);
  const batch = await world.call<BatchCheckpoints>('POST', '/sandbox/checkpoints:batchGet', {
    body: { checkpoint_ids: [second.id, 'none'] },
  });
  expectFits('batchGetCheckpoints', batch.body);
  expect(batch.body).toMatchObject({
    checkpoints: [{ id: second.id }],
    errors: [{ checkpoint_id: 'none', code: 'NOT_FOUND' }],
  });
  const gone = await world.call('DELETE', `/sandbox/checkpoints/${first.id}`);
  expectFits('deleteCheckpoint', gone.body);
  expect((await world.call('GET', `/sandbox/checkpoints/${first.id}`)).status).toBe(404);
  expect((await world.call('DELETE', `/sandbox/checkpoints/${first.id}`)).status).toBe(404);
  expect([...world.node.checkpoints.keys()]).toEqual([second.id]);
});

it('outlives its sandbox and the control plane, and belongs to whom that belonged to', async () => {
  const { id } = await world.create();
  const { id: kept } = await make(id);
  const other = await world.makeKey('somebody');
  for (const [method, path] of [
    ['GET', `/sandbox/checkpoints/${kept}`],
    ['DELETE', `/sandbox/checkpoints/${kept}`],
    ['GET', `/sandbox/${id}/checkpoints`],
    ['DELETE', `/sandbox/${id}/checkpoints`],
    ['POST', `/sandbox/${id}/checkpoints`],
  ] as const)
    expect((await world.call(method, path, { key: other })).status, path).toBe(404);
  const foreign = await world.call('POST', '/sandbox', {
    key: other,
    body: { name: 'x', checkpoint_id: kept },
  });
  expect(foreign.status).toBe(404);
  const seen = await world.call<CheckpointList>('GET', '/sandbox/checkpoints', { key: other });
  expect(seen.body.checkpoints).toEqual([]);
  await world.call('DELETE', `/sandbox/${id}`);
  await world.stopPlane();
  await world.startPlane();
  await world.inStep();
  expect((await look(kept)).state).toBe('DURABLE');
  expect(
    (await world.call<CheckpointList>('GET', `/sandbox/${id}/checkpoints`)).body.checkpoints,
  ).toHaveLength(1);
  const prefix = await world.call<CheckpointList>(
    'GET',
    `/sandbox/checkpoints?id_prefix=${kept.slice(0, 5)}`,
  );
  expect(prefix.body.checkpoints.map((one) => one.id)).toEqual([kept]);
  const all = await world.call<DeletedCheckpoints>('DELETE', `/sandbox/${id}/checkpoints`);
  expectFits('deleteSandboxCheckpoints', all.body);
  expect(all.body).toEqual({ deleted: [kept], errors: [] });
});

it('a sandbox from one has what its source had, but for what the create says', async () => {
  const source = await world.create({
    ...{ environment_vars: { A: '1', B: '2' }, secrets: { S: 'x' }, memory_gb: 1, disk_size_gb: 3 },
    ...{ network_allowlist: ['example.org'], labels: ['run=1'] },
  });
  const { id } = await make(source.id, { with_memory: true });
  const disk = await createFrom({ checkpoint_id: id, environment_vars: { B: '3' }, cpu_cores: 2 });
  expectFits('createSandbox', disk.body);
  expect(disk.body).toMatchObject({
    ...{ status: 'RUNNING', dockerImage: 'python:3.11-slim', checkpointId: id, labels: [], diskSizeGB: 3 },
    ...{ cpuCores: 2, memoryGB: 1, environmentVars: { A: '1', B: '3' }, networkAllowlist: ['example.org'] },
  });
  const node = (sandbox: Sandbox) => world.node.sandboxes.get(sandbox.id)?.spec;
  expect(node(disk.body)).toMatchObject({ checkpoint: { id, memory: false }, secrets: { S: 'x' } });
  const memory = await createFrom({ checkpoint_id: id, restore_memory: true, network_access: true });
  expect(memory.body).toMatchObject({ status: 'RUNNING', cpuCores: 1, networkAllowlist: null });
  expect(node(memory.body)).toMatchObject({ checkpoint: { id, memory: true } });
  const next = await make(memory.body.id);
  expect(next).toMatchObject({ parent_id: id, depth: 1 });
  const fork = await world.call<{ sandboxes: Sandbox[] }>('POST', `/sandbox/${memory.body.id}/fork`);
  expect(node(fork.body.sandboxes[0] as Sandbox)?.checkpoint).toBeUndefined();
});

it('says which fields do not go with one, and what cannot be restored', async () => {
  const source = await world.create({ memory_gb: 1 });
  const { id: disk } = await make(source.id);
  const { id } = await make(source.id, { with_memory: true });
  expectField(await createFrom({ checkpoint_id: id, docker_image: 'x' }), 'docker_image');
  expectField(await createFrom({ checkpoint_id: id, disk_size_gb: 5 }), 'disk_size_gb');
  expectField(await createFrom({ restore_memory: true, docker_image: 'x' }), 'restore_memory');
  expectField(await createFrom({ checkpoint_id: id, restore_memory: true, memory_gb: 2 }), 'memory_gb');
  expectField(
    await createFrom({ checkpoint_id: id, restore_memory: true, start_command: 'sleep 1' }),
    'start_command',
  );
  const none = await createFrom({ checkpoint_id: disk, restore_memory: true });
  expect([none.status, detailOf(none)]).toEqual([409, expect.stringMatching(/has no memory/)]);
  world.node.refuseCheck = { status: 409, body: { code: 'conflict', message: 'here is QEMU 99' } };
  const other = await createFrom({ checkpoint_id: id, restore_memory: true });
  expect([other.status, detailOf(other)]).toEqual([409, expect.stringMatching(/here is QEMU 99/)]);
  const back = await rollback(source.id, { checkpoint_id: id });
  expect([back.status, detailOf(back)]).toEqual([409, expect.stringMatching(/here is QEMU 99/)]);
  expect(await world.get(source.id)).toMatchObject({ status: 'RUNNING', generation: 1 });
  expect(world.node.sandboxes.size).toBe(1);
});

it('one key makes one sandbox, also when the checkpoint is gone by then', async () => {
  const source = await world.create();
  const { id } = await make(source.id);
  const body = { checkpoint_id: id, idempotency_key: 'k' };
  const first = await createFrom(body);
  await world.call('DELETE', `/sandbox/checkpoints/${id}`);
  expect((await createFrom(body)).body.id).toBe(first.body.id);
  expect((await createFrom({ ...body, cpu_cores: 2 })).status).toBe(409);
  expect((await createFrom({ checkpoint_id: id })).status).toBe(404);
});

it('only what runs or is paused is saved; what could not be saved says why, and leaves nothing', async () => {
  const source = await world.create();
  world.node.refuseCheckpoint = { status: 507, body: { code: 'no-space', message: 'the disk is full' } };
  const failed = await begin(source.id);
  expect(failed.status).toBe(201);
  expect(failed.body).toMatchObject({ state: 'FAILED', error: expect.stringMatching(/the disk is full/) });
  expect((await createFrom({ checkpoint_id: failed.body.id })).status).toBe(409);
  world.node.refuseCheckpoint = { status: 409, body: { code: 'conflict', message: 'it is rebooting' } };
  const refused = await begin(source.id);
  expect([refused.status, detailOf(refused)]).toEqual([409, expect.stringMatching(/it is rebooting/)]);
  world.node.refuseCheckpoint = undefined;
  world.node.refuseSettle = { status: 507, body: { code: 'no-space', message: 'the disk is full' } };
  const late = await begin(source.id);
  await world.eventually(async () => (await look(late.body.id)).state === 'FAILED');
  expect(world.node.checkpoints.size).toBe(0);
  expect((await world.get(source.id)).status).toBe('RUNNING');
  expectField(await begin(source.id, { ttl_seconds: 0 }), 'ttl_seconds');
  const found = await world.call<CheckpointList>('GET', `/sandbox/${source.id}/checkpoints`);
  expect(found.body.checkpoints.map(({ state }) => state)).toEqual(['FAILED', 'FAILED']);
});

it('a paused sandbox is saved without being woken, also while it is being paused', async () => {
  const source = await world.create();
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  world.node.gate = async (kind) => (kind === 'pause' ? released : undefined);
  const pausing = world.call('POST', `/sandbox/${source.id}/pause`);
  await world.eventually(async () => (await world.get(source.id)).status === 'PAUSED');
  const during = await make(source.id, { with_memory: true });
  release();
  await pausing;
  const paused = await make(source.id);
  expect(paused).toMatchObject({ parent_id: during.id, depth: 1, with_memory: false });
  expect(await world.get(source.id)).toMatchObject({ status: 'PAUSED', generation: 1 });
  await world.call('DELETE', `/sandbox/${source.id}`);
  expect((await begin(source.id)).status).toBe(409);
});

it('rolls back with a raised generation, running or paused, and wants room for a paused one', async () => {
  const source = await world.create();
  const { id } = await make(source.id, { with_memory: true });
  const later = await make(source.id);
  const back = await rollback(source.id, { checkpoint_id: id });
  expectFits('rollbackSandbox', back.body);
  expect(back).toMatchObject({ status: 200, body: { status: 'RUNNING', generation: 2, checkpointId: id } });
  expect(await make(source.id)).toMatchObject({ parent_id: id, depth: 1 });
  await world.call('POST', `/sandbox/${source.id}/pause`);
  const paused = await rollback(source.id, { checkpoint_id: later.id });
  expect(paused.body).toMatchObject({ status: 'RUNNING', generation: 3, checkpointId: later.id });
  const none = await rollback(source.id, { checkpoint_id: later.id, restore_memory: true });
  expect([none.status, detailOf(none)]).toEqual([409, expect.stringMatching(/has no memory/)]);
  const other = await world.create();
  const foreign = await rollback(other.id, { checkpoint_id: id });
  expect([foreign.status, detailOf(foreign)]).toEqual([409, expect.stringMatching(/is of sandbox/)]);
  expect((await rollback(source.id, { checkpoint_id: 'none' })).status).toBe(404);
});

it('a rollback that its node refuses changes nothing; one that it never heard of is sent again', async () => {
  const source = await world.create();
  const { id } = await make(source.id, { with_memory: true });
  for (const [status, message] of [
    [409, 'it is being saved'],
    [507, 'the disk is full'],
  ] as const) {
    world.node.refuseResume = { status, body: { code: 'refused', message } };
    const refused = await rollback(source.id, { checkpoint_id: id });
    expect([refused.status, detailOf(refused)]).toEqual([409, expect.stringContaining(message)]);
    expect(await world.get(source.id)).toMatchObject({
      status: 'RUNNING',
      generation: 1,
      checkpointId: null,
    });
  }
  world.node.refuseResume = undefined;
  world.node.gate = async (kind) => {
    if (kind === 'resume') throw new Error('the test says no');
  };
  const going = rollback(source.id, { checkpoint_id: id });
  await world.eventually(async () => (await world.get(source.id)).generation === 2);
  world.node.gate = async () => undefined;
  await world.reconcile();
  expect((await going).body).toMatchObject({ status: 'RUNNING', generation: 2 });
});

it('while it is saved it cannot be deleted, and what is cut off is found out afterwards', async () => {
  const source = await world.create();
  const asked = world.node.hangAt('checkpoint');
  begin(source.id).catch(() => undefined);
  await asked;
  const [pending] = (await world.call<CheckpointList>('GET', `/sandbox/${source.id}/checkpoints`)).body
    .checkpoints;
  const { id } = pending as Checkpoint;
  expect(pending).toMatchObject({ state: 'PENDING' });
  expect((await world.call('DELETE', `/sandbox/checkpoints/${id}`)).status).toBe(409);
  const all = await world.call<DeletedCheckpoints>('DELETE', `/sandbox/${source.id}/checkpoints`);
  expect(all.body).toMatchObject({ deleted: [], errors: [{ checkpoint_id: id, code: 'CONFLICT' }] });
  expect((await createFrom({ checkpoint_id: id })).status).toBe(409);
  await world.node.stop();
  await world.stopPlane();
  world.node.gate = async () => undefined;
  await world.node.start();
  await world.startPlane();
  await world.inStep();
  await world.eventually(async () => {
    await world.reconcile();
    return (await look(id)).state === 'FAILED';
  });
  expect((await look(id)).error).toMatch(/cut off/);
  // Had it been saved by then, it would have gone on.
  const saved = { sandboxId: source.id, memory: false, consistency: 'crash', durable: false } as const;
  const second = await world.call<Checkpoint>('POST', `/sandbox/${source.id}/checkpoints`);
  world.node.checkpoints.set('lost', {
    ...{ id: 'lost', diskBytes: 1, ownBytes: 1, sharedBytes: 0, createdAtUnixMs: 0 },
    ...saved,
  });
  await world.eventually(async () => (await look(second.body.id)).state === 'DURABLE');
  // Nobody's: deleted after a while.
  world.skewMs = 61_000;
  for (let pass = 0; pass < 7; pass++) await world.reconcile();
  world.skewMs = 130_000;
  for (let pass = 0; pass < 7; pass++) await world.reconcile();
  expect([...world.node.checkpoints.keys()]).toEqual([second.body.id]);
});

it('ends when its time is over', async () => {
  const source = await world.create();
  const { id, expires_at } = await make(source.id, { ttl_seconds: 60 });
  expect(Date.parse(expires_at as string) - Date.now()).toBeLessThanOrEqual(60_000);
  world.skewMs = 61_000;
  expect((await world.call('GET', `/sandbox/checkpoints/${id}`)).status).toBe(404);
  expect((await createFrom({ checkpoint_id: id })).status).toBe(404);
  await world.reconcile();
  await world.eventually(async () => world.node.checkpoints.size === 0);
});
