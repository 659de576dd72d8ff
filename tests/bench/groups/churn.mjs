// Group `churn`: 200 create/delete cycles leave no process, file, descriptor, and no memory behind.
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { collectGarbage } from '../product/collect.mjs';
import { listDescriptors, listTree, readPssMiB } from '../product/processes.mjs';
import { timeFirstExec } from '../product/server.mjs';

/** Caches fill and pools reach their size before the count begins. */
const warmCycles = 100;
/** Kept connections that nobody uses close after 75 s, the clients' as well as those between our daemons. */
const settleMs = 80_000;
const cycles = 200;
const abreast = 2;

export async function measure({ server, image, onFigure }) {
  const pids = () => server.status.processes.flatMap(({ pid }) => listTree(pid));
  const look = async () => {
    await sleep(settleMs);
    const trees = [...new Set(pids())];
    const { machines } = await server.json('GET', '/api/v1/status');
    return {
      processes: [...trees, ...machines.map(({ pid }) => pid)],
      files: listFiles(server.status.data_folder ?? server.status.dataFolder),
      descriptors: listDescriptors(trees),
    };
  };
  await cycle(server, image, warmCycles);
  const before = await look();
  const memory = [];
  for (let done = 0; done < cycles; done += 20) {
    await cycle(server, image, 20);
    // Of the daemons alone: what they start for a moment is no growth.
    const daemons = server.status.processes.map(({ pid }) => pid);
    for (const pid of daemons) await collectGarbage(pid);
    memory.push([done + 20, readPssMiB(daemons) * 1024]);
  }
  const after = await look();
  for (const what of ['files', 'processes', 'descriptors']) {
    const made = added(before[what], after[what]);
    if (made.length > 0) console.error(`${what} that were not there before: ${made.join(', ')}`);
    onFigure(`churn-200-${what}`, { product: Math.max(0, after[what].length - before[what].length) });
  }
  onFigure('churn-200-memory-slope', { product: Math.max(0, slope(memory)) });
}

async function cycle(server, image, count) {
  let next = 0;
  const strand = async () => {
    while (next++ < count) await server.remove((await timeFirstExec(server, image, '/bin/true')).id);
  };
  await Promise.all(Array.from({ length: abreast }, strand));
}

/** Files below the data folder, without the database's own and logs, which only append. */
function listFiles(folder) {
  const found = execFileSync(
    'find',
    [folder, '-xdev', '-type', 'f', '-not', '-path', '*/logs/*', '-not', '-name', '*.db-*'],
    {
      encoding: 'utf8',
      maxBuffer: 256 * 1024 ** 2,
    },
  );
  return found.trim().split('\n');
}

/** What the second list has more of. */
function added(before, after) {
  const left = [...before];
  return after.filter((item) => {
    const at = left.indexOf(item);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}

/** Least squares. */
function slope(points) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [x, y] = [mean(points.map((point) => point[0])), mean(points.map((point) => point[1]))];
  const covariance = points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0);
  return covariance / points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0);
}
