// Group `copies`: live forks, resumes, rollbacks and checkpoints, each beside the bare save and restore of a machine with the same
// guest: an idle python. In every round the bare machine and the product take turns.
import { setTimeout as sleep } from 'node:timers/promises';
import {
  idlePython,
  measureCopy,
  measureFork,
  measureResume,
  measureStill,
  openSource,
} from '../bare/copies.mjs';
import { endMachine, quantile, withBare } from '../bare/machine.mjs';
import { readPrivateMiB } from '../bare/memory.mjs';
import { removeSaved, saveAndGoOn } from '../bare/save.mjs';
import {
  openSandbox,
  removeCheckpoints,
  timeCheckpoint,
  timeFork,
  timeResume,
  timeRollback,
  watchSaves,
} from '../product/copies.mjs';

const rounds = 5;
const copies = 16;
/** How many bare starts go side by side, as in group burst. */
const abreast = 4;
/** A guest that has just started writes for a while. */
const settleMs = 2_000;
const saves = 200;

export async function measure({ server, image, accelerator, onFigure }) {
  await withBare({ accelerator }, async (bare) => {
    const pair = { bare, server, image };
    await measurePause(pair, 0, (figure) => onFigure('fork-source-pause', figure));
    await measurePause(pair, 300, (figure) => onFigure('fork-source-pause-300mib', figure));
    await measureForks(pair, onFigure);
    await measureResumes(pair, onFigure);
    await measureRollbacks(pair, onFigure);
  });
  await measureChain({ server, image, onFigure });
}

/** The same guest in both, with so much memory of python's own. */
async function openBoth({ bare, server, image }, mib) {
  const plain = await openSource(bare, mib);
  const product = await openSandbox(server, image, idlePython(mib));
  await sleep(settleMs);
  return { plain, product };
}

/** How long a source of a fork stands still. */
async function measurePause(pair, mib, onFigure) {
  const { server } = pair;
  const { plain, product } = await openBoth(pair, mib);
  const log = watchSaves(server);
  const seen = { bare: [], product: [] };
  for (let round = 0; round < rounds; round++) {
    seen.bare.push(await measureStill(plain));
    const { ids } = await timeFork(server, product.id, 1);
    seen.product.push(await log.nextSave(product.id));
    await server.remove(ids[0]);
  }
  log.close();
  await server.remove(product.id);
  await endMachine(plain.machine);
  const p50 = (side, name) =>
    quantile(
      seen[side].map((one) => one[name]),
      0.5,
    );
  const mibOf = (side) => Math.round(p50(side, 'dirtyBytes') / 2 ** 20);
  say(`own memory of the sources: product ${mibOf('product')} MiB, bare ${mibOf('bare')} MiB`, seen);
  onFigure({ product: p50('product', 'stillMs'), bare: p50('bare', 'stillMs') });
}

/** One call, sixteen copies, the first exec of each; and the memory that each has of its own then. */
async function measureForks(pair, onFigure) {
  const { bare, server } = pair;
  const { plain, product } = await openBoth(pair, 0);
  const seen = { bare: [], product: [] };
  const idle = () => sleep(settleMs);
  for (let round = 0; round < 2; round++) {
    seen.bare.push(await measureFork(bare, plain, { count: copies, abreast, idle }));
    const { ids, ms } = await timeFork(server, product.id, copies);
    await idle();
    const { machines } = await server.json('GET', '/api/v1/status');
    const ours = machines.filter(({ id }) => ids.includes(id));
    if (ours.length !== copies) throw new Error(`status shows ${ours.length} of ${copies} machines`);
    const privateMiB = ours.reduce((sum, { pid }) => sum + readPrivateMiB(pid), 0) / copies;
    seen.product.push({ totalMs: ms, privateMiB });
    await Promise.all(ids.map((id) => server.remove(id)));
  }
  await server.remove(product.id);
  await endMachine(plain.machine);
  say('forks', seen);
  const least = (side, name) => Math.min(...seen[side].map((one) => one[name]));
  const figure = (name) => ({ product: least('product', name), bare: least('bare', name) });
  onFigure('fork-16-first-exec', figure('totalMs'));
  onFigure('fork-child-private-memory', figure('privateMiB'));
}

/** A paused sandbox from the resume to its first exec. */
async function measureResumes(pair, onFigure) {
  const { bare, server } = pair;
  const both = await openBoth(pair, 0);
  const seen = { bare: [], product: [] };
  let { plain } = both;
  let before;
  for (let round = 0; round < rounds; round++) {
    const { source, from, firstExecMs } = await measureResume(bare, plain);
    plain = source;
    seen.bare.push(firstExecMs);
    // The machine has its memory mapped until it is saved again.
    if (before) removeSaved(before);
    before = from;
    seen.product.push(await timeResume(server, both.product));
  }
  await server.remove(both.product.id);
  await endMachine(plain.machine);
  removeSaved(before);
  report('resume-first-exec', seen, onFigure);
}

/** A sandbox with 100 MiB changed on its disk, back to a checkpoint with memory. Bare is a restore of such a save on a new disk. */
async function measureRollbacks(pair, onFigure) {
  const { bare, server } = pair;
  const { plain, product } = await openBoth(pair, 0);
  const seen = { bare: [], product: [] };
  const line = 'test ! -e /root/changed && echo hello';
  const { from } = await saveAndGoOn(plain.machine);
  try {
    const { checkpoint } = await timeCheckpoint(server, product.id, true);
    for (let round = 0; round < rounds; round++) {
      seen.bare.push(await measureCopy(bare, from, line));
      await server.exec(product.gateway, 'dd if=/dev/zero of=/root/changed bs=1M count=100 conv=fsync');
      seen.product.push(await timeRollback(server, product, checkpoint, line));
    }
  } finally {
    await removeCheckpoints(server, [product.id]);
  }
  await server.remove(product.id);
  await endMachine(plain.machine);
  removeSaved(from);
  report('rollback-100mib-first-exec', seen, onFigure);
}

/**
 * 200 checkpoints of a disk, all of which stay, each until it is durable, 256 KiB written between them. In place of bare: the 6th to
 * 15th of a young sandbox, made in turns with the last ten, because the host is not the same in two different minutes.
 */
async function measureChain({ server, image, onFigure }) {
  const old = await openSandbox(server, image);
  const young = await openSandbox(server, image);
  const seen = { product: [], bare: [] };
  const turn = async ({ id, gateway }, name) => {
    await server.exec(gateway, `head -c 262144 /dev/urandom > /root/${name}`);
    return (await timeCheckpoint(server, id)).ms;
  };
  try {
    for (let number = 1; number <= saves; number++) {
      const ms = await turn(old, number);
      const place = number - (saves - 15);
      if (place < 1) continue;
      const youngMs = await turn(young, place);
      if (place < 6) continue;
      seen.product.push(ms);
      seen.bare.push(youngMs);
    }
  } finally {
    await removeCheckpoints(server, [old.id, young.id]);
  }
  await server.remove(old.id);
  await server.remove(young.id);
  report('checkpoint-200th', seen, onFigure);
}

function report(name, seen, onFigure) {
  say(name, seen);
  onFigure(name, { product: quantile(seen.product, 0.5), bare: quantile(seen.bare, 0.5) });
}

/** What was seen, on stderr, with the seconds since the start. */
function say(what, seen) {
  const rounded = (_, value) => (typeof value === 'number' ? Math.round(value * 10) / 10 : value);
  console.error(`copies, ${Math.round(performance.now() / 1000)} s: ${what}`, JSON.stringify(seen, rounded));
}
