// Bare figures of copies of a running machine, ms: how long a source stands still, a fork to the first exec result of each copy,
// a save and end to the first exec again. `node copies.mjs [--count 16] [--abreast 4] [--mib 0] [--accelerator tcg|kvm]` prints
// JSON; groups/copies.mjs takes the parts in turns with the product.
import { pathToFileURL } from 'node:url';
import { startAbreast } from './burst.mjs';
import {
  connectLines,
  endMachine,
  exec,
  mountAndExec,
  readArguments,
  restore,
  withBare,
} from './machine.mjs';
import { readPrivateMiB } from './memory.mjs';
import { removeSaved, saveAndEnd, saveAndGoOn } from './save.mjs';

/** A shell line that leaves a python asleep which has written to so much of its memory. */
export const idlePython = (mib) =>
  `python3 -c "import time; held = bytearray(b'x') * (${mib} << 20); open('/tmp/ready', 'w').close(); time.sleep(86400)" ` +
  '>/dev/null 2>&1 & until [ -e /tmp/ready ]; do sleep 0.1; done; rm /tmp/ready; sync';

/** A machine with its root mounted and an idle python. `ask` talks to its agent. */
export async function openSource(bare, mib) {
  const machine = await restore(bare);
  const ask = await connectLines(machine);
  await mountAndExec(ask, idlePython(mib));
  return { machine, ask };
}

/** How long it stands still in a save, and the bytes of memory that are its own. */
export async function measureStill({ machine }) {
  const { from, stillMs, dirtyBytes } = await saveAndGoOn(machine);
  removeSaved(from);
  return { stillMs, dirtyBytes };
}

/** A save and so many copies, `abreast` at a time, each to its first exec; `idleMs` later the mean of their private memory. */
export async function measureFork(bare, { machine }, { count, abreast, idle }) {
  const begin = performance.now();
  const { from } = await saveAndGoOn(machine);
  const copies = [];
  await startAbreast(count, abreast, async () => copies.push(await startCopy(bare, from)));
  const totalMs = performance.now() - begin;
  await idle();
  const privateMiB = copies.reduce((sum, { child }) => sum + readPrivateMiB(child.pid), 0) / count;
  await Promise.all(copies.map(endMachine));
  removeSaved(from);
  return { totalMs, privateMiB };
}

/** Saves a machine and ends it; how long it takes from there to the first exec of the one that goes on. Answers that one too. */
export async function measureResume(bare, { machine }) {
  const from = await saveAndEnd(machine);
  const begin = performance.now();
  const next = await startCopy(bare, from);
  const firstExecMs = performance.now() - begin;
  return { source: { machine: next }, from, firstExecMs };
}

/** How long a new machine takes from what was saved to its first exec. */
export async function measureCopy(bare, from, line) {
  const begin = performance.now();
  const machine = await startCopy(bare, from, line);
  const firstExecMs = performance.now() - begin;
  await endMachine(machine);
  return firstExecMs;
}

async function startCopy(bare, from, line = 'echo hello') {
  const machine = await restore(bare, from);
  await exec(await connectLines(machine), line);
  return machine;
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const defaults = { count: 16, abreast: 4, mib: 0, accelerator: 'tcg' };
  const { count, abreast, mib, accelerator } = readArguments(defaults);
  await withBare({ accelerator }, async (bare) => {
    const source = await openSource(bare, mib);
    const still = await measureStill(source);
    const fork = await measureFork(bare, source, { count, abreast, idle: async () => {} });
    const { from } = await saveAndGoOn(source.machine);
    const copyMs = await measureCopy(bare, from);
    await endMachine(source.machine);
    const { firstExecMs } = await measureResume(bare, await openSource(bare, mib));
    console.log(JSON.stringify({ mib, ...still, count, ...fork, copyMs, resumeMs: firstExecMs }));
  });
}
