// Group `memory`: private memory of an idle sandbox, 50 at once, with our daemons' share.
import { setTimeout as sleep } from 'node:timers/promises';
import { withBare } from '../bare/machine.mjs';
import { measureMemory, readPrivateMiB } from '../bare/memory.mjs';
import { timeFirstExec } from '../product/server.mjs';

const count = 50;
const abreast = 4;
const idleMs = 5_000;

export async function measure({ server, image, accelerator, onFigure }) {
  const product = await measureProduct(server, image);
  await server.removeAll();
  const { privateMiB } = await withBare({ accelerator }, (bare) => measureMemory(bare, count, idleMs));
  onFigure('idle-private-memory', { product, bare: privateMiB });
}

/** MiB for each sandbox: its machine's, and its part of our daemons'. */
async function measureProduct(server, image) {
  const ids = [];
  let next = 0;
  const strand = async () => {
    while (next++ < count) ids.push((await timeFirstExec(server, image)).id);
  };
  await Promise.all(Array.from({ length: abreast }, strand));
  await sleep(idleMs);
  const { processes, machines } = await server.json('GET', '/api/v1/status');
  const ours = machines.filter((machine) => ids.includes(machine.id));
  if (ours.length !== count) throw new Error(`status shows ${ours.length} of ${count} machines`);
  const sum = (list) => list.reduce((total, { pid }) => total + readPrivateMiB(pid), 0);
  return (sum(ours) + sum(processes)) / count;
}
