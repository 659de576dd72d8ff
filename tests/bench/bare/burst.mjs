// Bare burst: machines restored all at once, each mounts its root and runs one command. Total in ms.
// `node burst.mjs [--count 30] [--abreast 4] [--accelerator tcg|kvm]` prints JSON.
import { pathToFileURL } from 'node:url';
import { connectLines, endMachine, mountAndExec, readArguments, restore, withBare } from './machine.mjs';

/** Calls `start` so often, `abreast` of them at a time. */
export async function startAbreast(count, abreast, start) {
  let next = 0;
  const strand = async () => {
    while (next++ < count) await start();
  };
  await Promise.all(Array.from({ length: abreast }, strand));
}

/** Runs the burst, `abreast` starts at a time; the machines stay until all are done, as in the product. */
export async function measureBurst(bare, count, abreast, line = 'echo hello') {
  const begin = performance.now();
  const machines = [];
  await startAbreast(count, abreast, async () => {
    const machine = await restore(bare);
    machines.push(machine);
    await mountAndExec(await connectLines(machine), line);
  });
  const totalMs = performance.now() - begin;
  await Promise.all(machines.map(endMachine));
  return { totalMs };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { count, abreast, accelerator } = readArguments({ count: 30, abreast: 4, accelerator: 'tcg' });
  await withBare({ accelerator }, async (bare) => {
    const { totalMs } = await measureBurst(bare, count, abreast);
    console.log(JSON.stringify({ count, abreast, totalMs: Math.round(totalMs) }));
  });
}
