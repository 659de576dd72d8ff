import type { Sandbox } from '@sandlot/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectField, simple, World } from './world.js';

const minute = 60_000;
let world: World;
beforeEach(async () => {
  world = await new World().open();
});
afterEach(() => world.close());

describe('room', () => {
  beforeEach(async () => {
    world.node.offer = { vcpus: 2, memoryMiB: 4096, diskGiB: 100 };
    await world.admin('GET', '/status');
  });

  it('a sandbox larger than the whole offer is refused, naming the field', async () => {
    expectField(await world.call('POST', '/sandbox', { body: { ...simple, cpu_cores: 3 } }), 'cpu_cores');
    expectField(await world.call('POST', '/sandbox', { body: { ...simple, memory_gb: 5 } }), 'memory_gb');
    expectField(
      await world.call('POST', '/sandbox', { body: { ...simple, disk_size_gb: 101 } }),
      'disk_size_gb',
    );
  });

  it('and is told in the units that were asked, with what there is', async () => {
    const { body } = await world.call<{ detail: string }>('POST', '/sandbox', {
      body: { ...simple, memory_gb: 60, cpu_cores: 2.5 },
    });
    expect(body.detail).toContain('memory_gb: 60 GiB is more than any node offers in all (4 GiB).');
    expect(body.detail).toContain('cpu_cores: 2.5 CPUs is more than any node offers in all (2).');
    expect(body.detail).not.toContain('MiB');
  });

  it('who does not fit waits in order, with a position, and starts when room is freed', async () => {
    const [first, second] = [await world.create(), await world.create()];
    const third = (await world.call<Sandbox>('POST', '/sandbox', { body: simple })).body;
    const fourth = (await world.call<Sandbox>('POST', '/sandbox', { body: { ...simple, memory_gb: 0.25 } }))
      .body;
    expect(third).toMatchObject({ status: 'PENDING', queuePosition: 1, stage: 'queue', nodeId: null });
    expect(fourth).toMatchObject({ status: 'PENDING', queuePosition: 2 });
    await world.call('DELETE', `/sandbox/${first.id}`);
    await world.eventually(async () => (await world.get(third.id)).status === 'RUNNING');
    expect((await world.get(fourth.id)).queuePosition).toBe(1);
    await world.call('DELETE', `/sandbox/${second.id}`);
    await world.eventually(async () => (await world.get(fourth.id)).status === 'RUNNING');
    expect((await world.get(fourth.id)).queuePosition).toBeNull();
  });

  it('who does not fit on a disk that is full now waits, and starts once there is room, without being asked about', async () => {
    world.node.offer = { ...world.node.offer, diskGiB: 5 };
    world.node.diskTotalGiB = 100;
    await world.admin('GET', '/status');
    const { status, body } = await world.call<Sandbox>('POST', '/sandbox', { body: simple });
    expect([status, body.queuePosition]).toEqual([201, 1]);
    world.node.offer = { ...world.node.offer, diskGiB: 20 };
    await world.reconcile();
    await world.eventually(async () => (await world.get(body.id)).status === 'RUNNING');
  });

  it('placement does not wait for a node that does not say what it offers now', async () => {
    world.node.offer = { ...world.node.offer, diskGiB: 5 };
    world.node.diskTotalGiB = 100;
    await world.admin('GET', '/status');
    const { body } = await world.call<Sandbox>('POST', '/sandbox', { body: simple });
    world.node.offer = { ...world.node.offer, diskGiB: 20 };
    await world.admin('GET', '/status');
    expect((await world.get(body.id)).status).toBe('PENDING');
    let answer = () => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    world.node.gate = async (kind) => {
      if (kind === 'info') await held;
    };
    const pass = world.reconcile();
    await world.eventually(async () => (await world.get(body.id)).status === 'RUNNING');
    answer();
    await pass;
  });

  it('one that waits can be deleted, and makes way', async () => {
    await world.create({ memory_gb: 3 });
    const large = (await world.call<Sandbox>('POST', '/sandbox', { body: { ...simple, memory_gb: 4 } })).body;
    const small = (await world.call<Sandbox>('POST', '/sandbox', { body: { ...simple, memory_gb: 1 } })).body;
    expect([large.queuePosition, small.queuePosition]).toEqual([1, 2]);
    expect((await world.call('DELETE', `/sandbox/${large.id}`)).status).toBe(200);
    expect((await world.get(large.id)).status).toBe('TERMINATED');
    await world.eventually(async () => (await world.get(small.id)).status === 'RUNNING');
    expect(world.node.calls).not.toContain(`DELETE /v1/sandboxes/${large.id}`);
  });

  it('after ten minutes it fails as CAPACITY', async () => {
    await world.create({ memory_gb: 4 });
    const { id } = (await world.call<Sandbox>('POST', '/sandbox', { body: simple })).body;
    world.skewMs = 9 * minute;
    await world.reconcile();
    expect((await world.get(id)).status).toBe('PENDING');
    world.skewMs = 11 * minute;
    await world.reconcile();
    expect(await world.get(id)).toMatchObject({
      status: 'ERROR',
      errorType: 'CAPACITY',
      queuePosition: null,
    });
  });

  it('never books more than is offered, however many come at once', async () => {
    await Promise.all(
      Array.from({ length: 12 }, () =>
        world.call('POST', '/sandbox?wait=0', { body: { ...simple, memory_gb: 1 } }),
      ),
    );
    const { body } = await world.admin('GET', '/status');
    const [node] = body['nodes'] as { reserved: { vcpus: number; memoryMiB: number } }[];
    expect(node?.reserved).toMatchObject({ vcpus: 2, memoryMiB: 2048 });
    expect(body['counts']).toMatchObject({ queued: 10 });
  });
});

describe('a restart of the control plane', () => {
  it('loses nothing: running ones run on, waiting ones start, ends are heard', async () => {
    const runs = await world.create({ secrets: { S: 'kept' } });
    const ends = await world.create();
    await world.stopPlane();
    world.node.change(ends.id, { state: 'failed', reason: 'OOM_KILLED', message: 'too small' });
    await world.startPlane();
    await world.inStep();
    expect((await world.get(runs.id)).status).toBe('RUNNING');
    await world.eventually(async () => (await world.get(ends.id)).status === 'ERROR');
    expect((await world.get(ends.id)).errorType).toBe('OOM_KILLED');
    await world.eventually(() => world.node.acknowledged.includes(ends.id));
    const again = await world.create({ idempotency_key: 'before' });
    await world.stopPlane();
    await world.startPlane();
    expect((await world.create({ idempotency_key: 'before' })).id).toBe(again.id);
  });

  it('sends a sandbox whose start was never sent', async () => {
    await world.node.stop();
    await world.eventually(async () => !(await reachable()));
    const { body } = await world.call<Sandbox>('POST', '/sandbox', {
      body: { ...simple, secrets: { S: 'kept' } },
    });
    expect(body).toMatchObject({ status: 'PENDING', queuePosition: 1 });
    await world.stopPlane();
    await world.node.start();
    await world.startPlane();
    await world.eventually(async () => (await world.get(body.id)).status === 'RUNNING');
    expect(world.node.sandboxes.get(body.id)?.spec.secrets).toEqual({ S: 'kept' });
  });

  it('finishes a delete that was cut off', async () => {
    const { id } = await world.create();
    await world.node.stop();
    const deleted = world.call('DELETE', `/sandbox/${id}`);
    expect((await deleted).status).toBe(200);
    expect((await world.get(id)).status).toBe('TERMINATED');
    await world.stopPlane();
    await world.node.start();
    await world.startPlane();
    await world.eventually(() => !world.node.sandboxes.has(id));
    expect((await world.get(id)).terminatedAt).not.toBeNull();
  });
});

describe('a restart of the node agent', () => {
  it('keeps what it adopts, ends what it no longer knows, starts again what had not begun', async () => {
    const kept = await world.create();
    const gone = await world.create();
    world.node.autoRun = false;
    const { body: begun } = await world.call<Sandbox>('POST', '/sandbox?wait=0', { body: simple });
    await world.eventually(() => world.node.sandboxes.has(begun.id));
    await world.node.stop();
    world.node.sandboxes.delete(gone.id);
    world.node.sandboxes.delete(begun.id);
    world.node.autoRun = true;
    await world.node.start();
    await world.eventually(async () => (await world.get(gone.id)).status === 'ERROR');
    expect((await world.get(gone.id)).errorType).toBe('MACHINE_ENDED');
    await world.eventually(async () => (await world.get(begun.id)).status === 'RUNNING');
    expect((await world.get(kept.id)).status).toBe('RUNNING');
  });

  it('a sandbox of a silent node is RUNNING for two minutes, then ERROR, and comes back with it', async () => {
    const { id } = await world.create();
    await world.node.stop();
    await world.eventually(async () => !(await reachable()));
    world.skewMs = 30_000;
    await world.reconcile();
    expect((await world.get(id)).status).toBe('RUNNING');
    world.skewMs = 30_000 + 2 * minute;
    await world.reconcile();
    expect(await world.get(id)).toMatchObject({ status: 'ERROR', errorType: 'NODE_LOST' });
    const active = await world.call('GET', '/sandbox?is_active=true');
    expect(active.body['total']).toBe(0);
    await world.node.start();
    await world.eventually(async () => (await world.get(id)).status === 'RUNNING');
    expect(await world.get(id)).toMatchObject({ errorType: null, terminatedAt: null });
    expect((await world.call('GET', '/sandbox?is_active=true')).body['total']).toBe(1);
  });

  it('one that is lost for a day is given up, and removed should its node come back', async () => {
    const { id } = await world.create();
    await world.node.stop();
    await world.eventually(async () => !(await reachable()));
    world.skewMs = minute;
    await world.reconcile();
    world.skewMs = 25 * 60 * minute;
    await world.reconcile();
    expect(await world.get(id)).toMatchObject({ status: 'ERROR', terminationReason: 'NODE_LOST' });
    await world.node.start();
    await world.eventually(() => !world.node.sandboxes.has(id));
    expect((await world.get(id)).terminatedAt).not.toBeNull();
  });
});

describe('the node', () => {
  it('refusing a start makes it fail, and says why', async () => {
    world.node.refuseStart = {
      status: 422,
      body: { code: 'invalid-reference', message: 'no such form of image' },
    };
    const { body } = await world.call<Sandbox>('POST', '/sandbox?wait=5', { body: simple });
    expect(body).toMatchObject({ status: 'ERROR', errorType: 'START_FAILED' });
    expect(body.errorMessage).toContain('no such form of image');
  });

  it('failing a start for a moment is asked again', async () => {
    world.node.refuseStart = { status: 500, body: { code: 'internal', message: 'oops' } };
    const { body } = await world.call<Sandbox>('POST', '/sandbox?wait=0', { body: simple });
    await world.eventually(() => world.node.calls.includes(`PUT /v1/sandboxes/${body.id}`));
    world.node.refuseStart = undefined;
    expect((await world.get(body.id)).status).toBe('PENDING');
    await world.eventually(async () => {
      await world.reconcile();
      return (await world.get(body.id)).status === 'RUNNING';
    });
  });

  it('is told to remove what has ended here, and, after a grace, what has no record', async () => {
    const { id } = await world.create();
    const sandbox = world.node.sandboxes.get(id);
    await world.call('DELETE', `/sandbox/${id}`);
    await world.eventually(() => !world.node.sandboxes.has(id));
    world.node.sandboxes.set(id, sandbox as NonNullable<typeof sandbox>);
    world.node.change(id, { state: 'running' });
    await world.eventually(() => !world.node.sandboxes.has(id));
    const stray = { sandboxId: 'stray', generation: 1, state: 'running' as const, timings: {} };
    world.node.sandboxes.set('stray', { spec: (sandbox as NonNullable<typeof sandbox>).spec, report: stray });
    world.node.change('stray', {});
    await settle();
    expect(world.node.calls).not.toContain('DELETE /v1/sandboxes/stray');
    world.skewMs = 61_000;
    world.node.change('stray', {});
    await world.eventually(() => !world.node.sandboxes.has('stray'));
  });

  it('reporting a lower generation, or an earlier stage, changes nothing', async () => {
    const { id } = await world.create();
    world.node.change(id, { state: 'starting', stage: 'mount' });
    world.node.publish({
      sandboxId: id,
      generation: 0,
      state: 'failed',
      reason: 'MACHINE_ENDED',
      timings: {},
    });
    await settle();
    expect((await world.get(id)).status).toBe('RUNNING');
  });

  it('that does not end a sandbox in time is told to', async () => {
    const { id } = await world.create({ timeout_minutes: 5 });
    world.skewMs = 6 * minute;
    await world.reconcile();
    expect((await world.get(id)).status).toBe('RUNNING');
    world.skewMs = 8 * minute;
    await world.eventually(async () => {
      await world.reconcile();
      return !world.node.sandboxes.has(id);
    });
    expect(await world.get(id)).toMatchObject({ status: 'TIMEOUT', errorType: 'TIMEOUT' });
  });

  it('that never gets further than starting is given up', async () => {
    world.node.autoRun = false;
    const { body } = await world.call<Sandbox>('POST', '/sandbox?wait=0', { body: simple });
    await world.eventually(() => world.node.sandboxes.has(body.id));
    world.node.change(body.id, { state: 'starting', stage: 'restore' });
    await world.eventually(async () => (await world.get(body.id)).status === 'PROVISIONING');
    world.skewMs = 21 * minute;
    await world.reconcile();
    await world.eventually(() => !world.node.sandboxes.has(body.id));
    expect(await world.get(body.id)).toMatchObject({ status: 'ERROR', errorType: 'START_FAILED' });
  });
});

it('ended records are kept seven days', async () => {
  const { id } = await world.create({ idempotency_key: 'old' });
  await world.call('DELETE', `/sandbox/${id}`);
  await world.eventually(async () => (await world.get(id)).terminatedAt !== null);
  const day = 24 * 60 * minute;
  world.skewMs = 6.9 * day;
  for (let pass = 0; pass < 6; pass++) await world.reconcile();
  expect((await world.get(id)).status).toBe('TERMINATED');
  world.skewMs = 7.1 * day;
  for (let pass = 0; pass < 6; pass++) await world.reconcile();
  expect((await world.call('GET', `/sandbox/${id}`)).status).toBe(404);
});

async function reachable(): Promise<boolean> {
  const { body } = await world.admin('GET', '/status');
  return (body['nodes'] as { reachable: boolean }[]).some((node) => node.reachable);
}

/** Long enough for a report to have been taken in, where nothing is to be seen of it. */
function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 100));
}
