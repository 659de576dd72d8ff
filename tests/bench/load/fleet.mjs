// The sandboxes of the load: made in one burst that is larger than the host, so that some of them queue, and removed in
// one call. Used by main.mjs.
import { setTimeout as sleep } from 'node:timers/promises';

const label = 'load';
/** Creates beyond the room of the host. */
const beyond = 16;
const runDeadlineMs = 240_000;

/** Asks for one sandbox; answers its record with the way to its gateway. */
export async function requestSandbox(client, image) {
  const record = await client.call('POST', '/api/v1/sandbox', {
    name: 'load',
    docker_image: image,
    cpu_cores: 1,
    memory_gb: 0.25,
    disk_size_gb: 1,
    labels: [label],
    timeout_minutes: 60,
  });
  const { gateway_url: url, user_ns: space, job_id: job, token } = record.gatewayAuth;
  const gateway = { path: `${new URL(url).pathname}/${space}/${job}`, token };
  return { id: record.id, queued: record.nodeId === null, gateway };
}

/** Waits until it runs. */
export async function untilRunning(client, id, deadline = performance.now() + runDeadlineMs) {
  for (;;) {
    const { status, errorMessage } = await client.call('GET', `/api/v1/sandbox/${id}?wait=20`);
    if (status === 'RUNNING') return;
    if (!['PENDING', 'PROVISIONING'].includes(status)) throw new Error(`${id} is ${status}: ${errorMessage}`);
    if (performance.now() > deadline) throw new Error(`${id} is still ${status}`);
  }
}

/** Deletes one; resolves when its machine is gone. */
export function removeSandbox(client, id) {
  return client.call('DELETE', `/api/v1/sandbox/${id}`);
}

/**
 * A burst of creates, 16 more than the host can hold; then those beyond `wanted` are deleted, so that the queued ones start.
 * Answers the `wanted` that run, and what became of the burst.
 */
export async function fillHost(client, image, wanted, room) {
  const asked = await Promise.allSettled(
    Array.from({ length: room + beyond }, () => requestSandbox(client, image)),
  );
  const refused = asked.filter(({ status }) => status === 'rejected').map(({ reason }) => reason);
  const all = asked.flatMap(({ value }) => value ?? []);
  if (refused.length > 0) throw new Error(`${refused.length} creates were refused`, { cause: refused[0] });
  const queued = all.filter((sandbox) => sandbox.queued);
  const placed = all.filter((sandbox) => !sandbox.queued);
  await checkPositions(client, queued);
  await Promise.all(placed.map(({ id }) => untilRunning(client, id)));
  const surplus = placed.slice(0, room + beyond - wanted);
  await Promise.all(surplus.map(({ id }) => removeSandbox(client, id)));
  await Promise.all(queued.map(({ id }) => untilRunning(client, id)));
  return { sandboxes: [...placed.slice(surplus.length), ...queued], queued: queued.length };
}

/** The queue is `1, 2, 3 …` in the records of those that wait. */
async function checkPositions(client, queued) {
  const records = await Promise.all(queued.map(({ id }) => client.call('GET', `/api/v1/sandbox/${id}`)));
  const positions = records.map((record) => record.queuePosition).sort((a, b) => a - b);
  const right = positions.length === beyond && positions.every((position, at) => position === at + 1);
  if (!right) throw new Error(`${beyond} should be queued, the positions are ${positions.join(' ')}`);
}

/** Deletes all that the load has made and waits until they are gone. */
export async function removeFleet(client) {
  for (;;) {
    const path = `/api/v1/sandbox?labels=${label}&is_active=true&per_page=100`;
    const { sandboxes } = await client.call('GET', path);
    if (sandboxes.length === 0) return;
    await client.call('DELETE', '/api/v1/sandbox', { sandbox_ids: sandboxes.map(({ id }) => id) });
    await sleep(100);
  }
}
