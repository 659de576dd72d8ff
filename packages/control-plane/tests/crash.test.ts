/** The control plane as a process that is told to end, or killed at any moment. */
import { existsSync } from 'node:fs';
import type { Sandbox, SandboxList } from '@sandlot/protocol';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { PlaneProcess } from './plane-process.js';
import { simple } from './world.js';

let plane: PlaneProcess;
beforeEach(async () => {
  plane = new PlaneProcess();
  await plane.node.start();
});
afterEach(() => plane.close());

/** A seeded generator (Park and Miller), so that a failure can be repeated. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

it('SIGTERM ends it at once and removes its socket; the admin socket gives the first key', {
  timeout: 60_000,
}, async () => {
  await plane.start();
  await plane.makeKey();
  expect(await plane.end('SIGTERM')).toBe(0);
  expect(existsSync(plane.adminSocket)).toBe(false);
});

it('kill -9 at any moment: what was answered holds, nothing is left over', { timeout: 120_000 }, async () => {
  const random = randomFrom(20_261_130);
  await plane.start();
  await plane.makeKey();
  const created = new Set<string>();
  const deleted = new Set<string>();
  let counter = 0;
  for (let round = 0; round < 6; round++) {
    let stopping = false;
    const worker = async () => {
      while (!stopping) {
        const idempotency_key = `k${counter++}`;
        const body = { ...simple, memory_gb: 0.25, disk_size_gb: 1, idempotency_key };
        const made = await plane.call<Sandbox>('POST', '/sandbox?wait=0', body).catch(() => undefined);
        if (made === undefined) return;
        created.add(made.body.id);
        if (random() < 0.4) continue;
        const gone = await plane.call('DELETE', `/sandbox/${made.body.id}`).catch(() => undefined);
        if (gone === undefined) return;
        expect(gone.status).toBe(200);
        deleted.add(made.body.id);
      }
    };
    const workers = Array.from({ length: 4 }, worker);
    // The first rounds kill within the very first creates, the later ones in the middle of many.
    await new Promise((resolve) => setTimeout(resolve, 30 + random() * 200 * round));
    // Many on a busy host, too.
    if (round > 1) await expect.poll(() => created.size, { timeout: 15_000 }).toBeGreaterThan(2 * round);
    await plane.end('SIGKILL');
    stopping = true;
    await Promise.all(workers);
    await plane.start();
  }
  expect(created.size).toBeGreaterThan(10);
  const settled = async () => {
    const live: Sandbox[] = [];
    for (let page = 1, more = true; more; page++) {
      const { body } = await plane.call<SandboxList>(
        'GET',
        `/sandbox?is_active=true&per_page=1000&page=${page}`,
      );
      live.push(...body.sandboxes);
      more = body.has_next;
    }
    const onNode = [...plane.node.sandboxes.values()]
      .filter(({ report }) => report.state === 'running')
      .map(({ spec }) => spec.sandboxId);
    const agree = JSON.stringify(live.map(({ id }) => id).sort()) === JSON.stringify(onNode.sort());
    return agree && live.every(({ status }) => status === 'RUNNING') ? live : undefined;
  };
  const until = Date.now() + 30_000;
  let live = await settled();
  while (live === undefined) {
    if (Date.now() > until) throw new Error('records and node never agreed');
    await new Promise((resolve) => setTimeout(resolve, 100));
    live = await settled();
  }
  const liveIds = new Set(live.map(({ id }) => id));
  for (const id of deleted) expect(liveIds.has(id)).toBe(false);
  for (const id of created) expect((await plane.call('GET', `/sandbox/${id}`)).status).toBe(200);
  // Created and answered, and no delete of it was ever answered: it lives, unless its delete was cut off after it was recorded.
  for (const id of [...created].filter((one) => !deleted.has(one) && !liveIds.has(one)))
    expect((await plane.call<Sandbox>('GET', `/sandbox/${id}`)).body.terminationReason).toBe('DELETED');
  const { body } = await plane.call<{ nodes: { reserved: { vcpus: number; memoryMiB: number } }[] }>(
    'GET',
    '/status',
  );
  expect(body.nodes[0]?.reserved).toMatchObject({ vcpus: live.length, memoryMiB: live.length * 256 });
});
