/** Pause and resume at the API: states, generations, room, and what wakes a paused sandbox. */
import type { Sandbox } from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { FakeSandbox } from './fake-node.js';
import { expectFits, World } from './world.js';

let world: World;
beforeEach(async () => {
  world = await new World().open();
});
afterEach(() => world.close());

/** In place of the world of the other tests: its node has room for one sandbox of 2 GiB. */
async function beginWithRoomForOne(): Promise<void> {
  await world.close();
  world = new World();
  world.node.offer = { vcpus: 1, memoryMiB: 2048, diskGiB: 100 };
  await world.open();
}

const pause = (id: string) => world.call<Sandbox>('POST', `/sandbox/${id}/pause`);
const resume = (id: string) => world.call<Sandbox>('POST', `/sandbox/${id}/resume`);

it('pauses and resumes: the generation rises, tokens of before stay good at the node', async () => {
  const { id, generation } = await world.create();
  const paused = await pause(id);
  expectFits('pauseSandbox', paused.body);
  expect(paused).toMatchObject({ status: 200, body: { status: 'PAUSED', generation } });
  expect((await pause(id)).body.status).toBe('PAUSED');
  const resumed = await resume(id);
  expectFits('resumeSandbox', resumed.body);
  expect(resumed).toMatchObject({ status: 200, body: { status: 'RUNNING', generation: generation + 1 } });
  expect((await resume(id)).body.generation).toBe(generation + 1);
  expect(world.node.sandboxes.get(id)?.spec).toMatchObject({ generation: generation + 1, tokensFrom: 1 });
});

it('frees cores and memory of a paused one, and waits with its return until there is room', async () => {
  await beginWithRoomForOne();
  const first = await world.create({ memory_gb: 2 });
  await pause(first.id);
  const second = await world.create({ memory_gb: 2 });
  expect(second.status).toBe('RUNNING');
  const refused = await resume(first.id);
  expect(refused.status).toBe(409);
  expect((refused.body as unknown as { detail: string }).detail).toMatch(/no room/);
  // A request at the gateway waits for it.
  world.node.change(first.id, { wanted: true });
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect((await world.get(first.id)).status).toBe('PAUSED');
  await world.call('DELETE', `/sandbox/${second.id}`);
  await world.reconcile();
  await world.eventually(async () => (await world.get(first.id)).status === 'RUNNING');
});

it('wakes one that a request waits for, and says why one cannot be resumed', async () => {
  const { id } = await world.create();
  await pause(id);
  world.node.failResume = 'the disk is damaged';
  const failed = await resume(id);
  expect(failed.status).toBe(502);
  expect((failed.body as unknown as { detail: string }).detail).toContain('the disk is damaged');
  expect((await world.get(id)).status).toBe('PAUSED');
  world.node.failResume = undefined;
  world.node.change(id, { wanted: true });
  await world.eventually(async () => (await world.get(id)).status === 'RUNNING');
});

it('one whose node refuses to resume it stays paused, can be tried again, and its end is believed', async () => {
  const { id } = await world.create();
  const { generation = 0 } = (await pause(id)).body;
  world.node.refuseResume = {
    status: 409,
    body: { code: 'conflict', message: 'the node is not in the mood' },
  };
  const refused = await resume(id);
  expect(refused.status).toBe(502);
  expect((refused.body as unknown as { detail: string }).detail).toContain('not in the mood');
  expect(await world.get(id)).toMatchObject({ status: 'PAUSED', generation });
  world.node.refuseResume = undefined;
  expect((await resume(id)).body).toMatchObject({ status: 'RUNNING', generation: generation + 1 });
  // It refuses because it has ended there, which it said while a higher generation was awaited.
  await pause(id);
  world.node.gate = async (kind) => {
    if (kind === 'resume')
      world.node.change(id, { state: 'stopped', reason: 'TIMEOUT', message: 'its time was over' });
  };
  world.node.refuseResume = { status: 409, body: { code: 'conflict', message: 'it has ended' } };
  await resume(id);
  await world.eventually(async () => (await world.get(id)).status === 'TIMEOUT');
  world.node.refuseResume = undefined;
  world.node.gate = async () => undefined;
});

it('an idle one is paused by its node', async () => {
  const { id, idleAction, idleTimeoutMinutes } = await world.create({ idle_action: 'pause' });
  expect({ idleAction, idleTimeoutMinutes }).toEqual({ idleAction: 'pause', idleTimeoutMinutes: 15 });
  expect(world.node.sandboxes.get(id)?.spec).toMatchObject({ idleAction: 'pause', idleTimeoutMs: 900_000 });
  world.node.change(id, { state: 'pausing' });
  world.node.change(id, { state: 'paused' });
  await world.eventually(async () => (await world.get(id)).status === 'PAUSED');
});

it('one that cannot be saved runs on, and the answer says why', async () => {
  const { id } = await world.create();
  world.node.refusePause = { status: 507, body: { code: 'no-space', message: 'the disk is full' } };
  expect((await pause(id)).status).toBe(507);
  expect((await world.get(id)).status).toBe('RUNNING');
});

it('what does not run cannot be paused; a paused one can be deleted', async () => {
  world.node.autoRun = false;
  const waiting = await world.call<Sandbox>('POST', '/sandbox', {
    body: { name: 'x', docker_image: 'python:3.11-slim' },
  });
  expect((await pause(waiting.body.id)).status).toBe(409);
  expect((await resume(waiting.body.id)).status).toBe(409);
  world.node.run(waiting.body.id);
  await world.eventually(async () => (await world.get(waiting.body.id)).status === 'RUNNING');
  await pause(waiting.body.id);
  expect((await world.call('DELETE', `/sandbox/${waiting.body.id}`)).status).toBe(200);
  expect((await world.get(waiting.body.id)).status).toBe('TERMINATED');
});

it('says so when the node is away', async () => {
  const { id } = await world.create();
  await pause(id);
  await world.node.stop();
  await world.eventually(async () => (await resume(id)).status === 503);
  await world.node.start();
  await world.inStep();
  expect((await resume(id)).body.status).toBe('RUNNING');
});

it('a resume that its node never heard of is sent again', async () => {
  const { id } = await world.create();
  await pause(id);
  world.node.gate = async (kind) => {
    if (kind === 'resume') throw new Error('the test says no');
  };
  const resuming = resume(id);
  await world.eventually(async () => (await world.get(id)).generation === 2);
  expect((await world.get(id)).status).toBe('PAUSED');
  world.node.gate = async () => undefined;
  await world.reconcile();
  expect((await resuming).body.status).toBe('RUNNING');
  await world.eventually(async () => (await world.get(id)).status === 'RUNNING');
});

/** As a node that died before it had written down that it resumes. */
function forgetResume(id: string): void {
  const known = world.node.sandboxes.get(id) as FakeSandbox;
  known.spec.generation = 1;
  known.report = { ...known.report, generation: 1, state: 'paused' };
  world.node.holdResume = false;
}

it('a resume that its node has accepted and forgotten is sent again', async () => {
  const { id } = await world.create();
  await pause(id);
  world.node.holdResume = true;
  const resuming = resume(id);
  await world.eventually(() => world.node.sandboxes.get(id)?.report.state === 'resuming');
  await world.node.stop();
  forgetResume(id);
  await world.node.start();
  expect((await resuming).body).toMatchObject({ status: 'RUNNING', generation: 2 });
});

it('a resuming one whose node was silent, and never heard of it, is not lost', async () => {
  const { id } = await world.create();
  await pause(id);
  world.node.holdResume = true;
  const resuming = resume(id);
  await world.eventually(() => world.node.sandboxes.get(id)?.report.state === 'resuming');
  await world.node.stop();
  forgetResume(id);
  await world.eventually(async () => {
    const { body } = await world.admin('GET', '/status');
    return (body['nodes'] as { reachable: boolean }[]).every((node) => !node.reachable);
  });
  world.skewMs += 15_000;
  await world.reconcile();
  expect(world.logged.some((line) => line.includes('"to":"lost"'))).toBe(true);
  await world.node.start();
  await world.eventually(async () => (await world.get(id)).status === 'RUNNING');
  await resuming;
});

it('a resume that ends the sandbox is no success', async () => {
  const { id } = await world.create();
  await pause(id);
  world.node.holdResume = true;
  const resuming = resume(id);
  await world.eventually(() => world.node.sandboxes.get(id)?.report.state === 'resuming');
  world.node.change(id, { state: 'failed', reason: 'MACHINE_ENDED', message: 'it was killed' });
  const answer = await resuming;
  expect(answer.status).toBe(502);
  expect((answer.body as unknown as { detail: string }).detail).toContain('it was killed');
});

it('a network policy that is changed while it is paused is in force before it goes on', async () => {
  const { id } = await world.create();
  await pause(id);
  const answer = await world.call('PUT', `/sandbox/${id}/egress-policy`, { body: { allowlist: [] } });
  expect(answer.body).toMatchObject({ applied: true });
  expect(world.node.sandboxes.get(id)?.spec.egress.allowlist).toEqual([]);
});

it('who waited and has given up wakes nobody', async () => {
  await beginWithRoomForOne();
  const first = await world.create({ memory_gb: 2 });
  await pause(first.id);
  const second = await world.create({ memory_gb: 2 });
  world.node.change(first.id, { wanted: true });
  await new Promise((resolve) => setTimeout(resolve, 50));
  const known = world.node.sandboxes.get(first.id) as FakeSandbox;
  const { wanted: _, ...rest } = known.report;
  known.report = rest;
  world.node.publish(rest);
  await new Promise((resolve) => setTimeout(resolve, 50));
  await world.call('DELETE', `/sandbox/${second.id}`);
  await world.reconcile();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect((await world.get(first.id)).status).toBe('PAUSED');
});
