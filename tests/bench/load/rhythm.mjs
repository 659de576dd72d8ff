// The steady load: each sandbox one exec and one status read every three seconds, and beside it creates and deletes at
// an even pace. Calls that are due are sent also when earlier ones of other sandboxes are late. Used by main.mjs.
import { setTimeout as sleep } from 'node:timers/promises';
import { removeSandbox, requestSandbox, untilRunning } from './fleet.mjs';
import { Times } from './meters.mjs';

const everyMs = 3_000;
/** Creates at work at once: more are not begun, and are missing in the rate. */
const maxCreates = 128;

/** Runs for `seconds`; answers what it took. */
export async function runRhythm({ client, image, sandboxes, seconds, createsPerMinute }) {
  const times = { exec: new Times(), status: new Times(), create: new Times(), remove: new Times() };
  const begin = performance.now();
  const end = begin + seconds * 1000;
  const work = sandboxes.flatMap((sandbox, index) => {
    const first = begin + (index * everyMs) / sandboxes.length;
    return [
      repeat(first, everyMs, end, (turn) =>
        times.exec.of(() => checkExec(client, sandbox.gateway, `${index}-${turn}`)),
      ),
      repeat(first + everyMs / 2, everyMs, end + everyMs / 2, () =>
        times.status.of(() => checkStatus(client, sandbox.id)),
      ),
    ];
  });
  work.push(churn({ client, image, times, begin, end, paceMs: 60_000 / createsPerMinute }));
  await Promise.all(work);
  const turns = sandboxes.length * 2 * Math.floor((seconds * 1000) / everyMs);
  const wanted = turns + (createsPerMinute * seconds) / 30;
  const done = Object.values(times).reduce((sum, { count }) => sum + count, 0);
  // What is late is done after the end: its time counts.
  const tookS = (performance.now() - begin) / 1000;
  return { times, callsPerSecond: done / Math.max(tookS, seconds), wantedPerSecond: wanted / seconds };
}

/** Calls `work` at its times; one that is missed because the last call was at work is left out. */
async function repeat(first, everyMs, end, work) {
  let turn = 0;
  for (let due = first; due < end; due += everyMs) {
    const now = performance.now();
    if (now > due + everyMs) continue;
    if (due > now) await sleep(due - now);
    await work(turn++);
  }
}

async function checkExec(client, gateway, text) {
  const said = await client.exec(gateway, `echo ${text}`);
  if (said !== `${text}\n`) throw new Error(`echo ${text} has said ${JSON.stringify(said)}`);
}

async function checkStatus(client, id) {
  const { id: answered, status } = await client.call('GET', `/api/v1/sandbox/${id}`);
  if (answered !== id || status !== 'RUNNING') throw new Error(`${id}: ${answered} is ${status}`);
}

async function churn({ client, image, times, begin, end, paceMs }) {
  const atWork = new Set();
  for (let due = begin; due < end; due += paceMs) {
    const now = performance.now();
    if (due > now) await sleep(due - now);
    if (atWork.size >= maxCreates) continue;
    const one = cycle(client, image, times).finally(() => atWork.delete(one));
    atWork.add(one);
  }
  await Promise.all(atWork);
}

async function cycle(client, image, times) {
  const id = await times.create.of(async () => {
    const sandbox = await requestSandbox(client, image);
    await untilRunning(client, sandbox.id);
    return sandbox.id;
  });
  if (id !== undefined) await times.remove.of(() => removeSandbox(client, id));
}
