// Bare memory: private MiB of an idle machine (restored, mounted, one exec), mean over machines that are
// alive at once. `node memory.mjs [--count 50] [--accelerator tcg|kvm]` prints JSON.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { connectLines, endMachine, mountAndExec, readArguments, restore, withBare } from './machine.mjs';

/** Memory of a process that is its own, MiB: what would be freed if it ended, swapped pages included. */
export function readPrivateMiB(pid) {
  const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const kib = [...rollup.matchAll(/^(?:Private_Clean|Private_Dirty|Swap):\s+(\d+) kB/gm)];
  return kib.reduce((sum, match) => sum + Number(match[1]), 0) / 1024;
}

/** Starts `count` machines one after the other and measures all when they have been idle for a while. */
export async function measureMemory(bare, count, idleMs = 5_000) {
  const machines = [];
  for (let i = 0; i < count; i++) {
    const machine = await restore(bare);
    machines.push(machine);
    await mountAndExec(await connectLines(machine), 'echo hello');
  }
  await sleep(idleMs);
  const sizes = machines.map((machine) => readPrivateMiB(machine.child.pid));
  await Promise.all(machines.map(endMachine));
  return { privateMiB: sizes.reduce((sum, size) => sum + size, 0) / count };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { count, accelerator } = readArguments({ count: 50, accelerator: 'tcg' });
  await withBare({ accelerator }, async (bare) => {
    const { privateMiB } = await measureMemory(bare, count);
    console.log(JSON.stringify({ count, privateMiB: Math.round(privateMiB * 10) / 10 }));
  });
}
