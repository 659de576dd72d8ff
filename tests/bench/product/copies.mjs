// Forks, pauses and checkpoints of the product as a client asks for them, each timed to the first exec. Used by group copies.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const hello = 'echo hello';

/** A sandbox in which this line has run: its id and gateway. */
export async function openSandbox(server, image, line) {
  const id = await server.create(image);
  const gateway = await server.authorize(id);
  if (line) await server.exec(gateway, line);
  return { id, gateway };
}

/** One fork; how many ms from its POST to the first exec result of every copy. */
export async function timeFork(server, id, count) {
  const begin = performance.now();
  const { sandboxes } = await server.json('POST', `/api/v1/sandbox/${id}/fork`, { body: { count } });
  await Promise.all(sandboxes.map(async (copy) => server.exec(await server.authorize(copy.id), hello)));
  return { ids: sandboxes.map((copy) => copy.id), ms: performance.now() - begin };
}

/** Pauses; how many ms from the POST of a resume to the first exec result. */
export async function timeResume(server, { id, gateway }) {
  await server.send('POST', `/api/v1/sandbox/${id}/pause`);
  const begin = performance.now();
  await server.send('POST', `/api/v1/sandbox/${id}/resume`);
  await server.exec(gateway, hello);
  return performance.now() - begin;
}

/** How many ms from the POST of a rollback to the result of this line. */
export async function timeRollback(server, { id, gateway }, checkpoint, line) {
  const begin = performance.now();
  await server.send('POST', `/api/v1/sandbox/${id}/rollback`, { body: { checkpoint_id: checkpoint } });
  await server.exec(gateway, line);
  return performance.now() - begin;
}

/** Makes a checkpoint that stays; its id, and how many ms until it is durable. */
export async function timeCheckpoint(server, id, withMemory = false) {
  const begin = performance.now();
  const body = { with_memory: withMemory };
  const made = await server.json('POST', `/api/v1/sandbox/${id}/checkpoints`, { body });
  const settled = await server.json('GET', `/api/v1/sandbox/checkpoints/${made.id}?wait=60`);
  if (settled.state !== 'DURABLE')
    throw new Error(`checkpoint ${made.id} is ${settled.state}: ${settled.error}`);
  return { checkpoint: made.id, ms: performance.now() - begin };
}

/** Deletes the checkpoints of sandboxes; those of others stay. */
export async function removeCheckpoints(server, ids) {
  for (const id of ids) await server.send('DELETE', `/api/v1/sandbox/${id}/checkpoints`);
}

/**
 * What the node agent's log says of saves from now on. The answered function gives the timings of the next one of this sandbox that
 * has gone on: `stillMs` is from the answer to QMP's `stop` to that to `cont`, as for the bare machine.
 */
export function watchSaves({ status }) {
  const file = openSync(path.join(status.dataFolder, 'logs/node-agent.log'), 'r');
  let at = fstatSync(file).size;
  let rest = '';
  const nextSave = async (id) => {
    for (const deadline = performance.now() + 10_000; performance.now() < deadline; await sleep(20)) {
      const { size } = fstatSync(file);
      // The log was cut, as it is when it is large.
      if (size < at) at = 0;
      const bytes = Buffer.alloc(size - at);
      at += readSync(file, bytes, 0, bytes.length, at);
      const lines = (rest + bytes.toString()).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (!line.includes('"saved, and goes on"')) continue;
        const { sandbox, timings } = JSON.parse(line);
        if (sandbox === id) return timings;
      }
    }
    throw new Error(`the node agent's log says nothing of a save of ${id}`);
  };
  return { nextSave, close: () => closeSync(file) };
}
