// `make bench-load` (tools/bench-load.sh starts the server): the load of many sandboxes on both daemons, with guests that are processes.
// Prints one line a figure as `make bench` does, then `N figures`. Exits 1 when anything failed; limits on time only show.
// Arguments: --sandboxes N --seconds N --image NAME --creates-per-minute N.
import { parseArgs } from 'node:util';
import { readExplanations } from '../explanations.mjs';
import { formatFigure } from '../figures.mjs';
import { sandlot } from '../product/server.mjs';
import { LoadClient } from './client.mjs';
import { fillHost, removeFleet } from './fleet.mjs';
import { Daemons, startIdleLoop, watch } from './meters.mjs';
import { runRhythm } from './rhythm.mjs';
import { measureStalled } from './stalled.mjs';

const { values } = parseArgs({
  options: {
    sandboxes: { type: 'string', default: '1024' },
    seconds: { type: 'string', default: '180' },
    image: { type: 'string', default: 'python:3.11-slim' },
    'creates-per-minute': { type: 'string', default: '512' },
  },
});
const wanted = Number(values.sandboxes);
const seconds = Number(values.seconds);
const { image } = values;
const stalledClients = Math.min(160, wanted);

const { url, api_key: key } = JSON.parse(await sandlot('config', '--output', 'json'));
const client = new LoadClient(url, key);
const status = await client.call('GET', '/api/v1/status');
const daemons = new Daemons(client, status);
const explained = readExplanations();
let count = 0;
const failures = [];
const note = (text) => console.error(`${((performance.now() - begin) / 1000).toFixed(1)} s: ${text}`);
const show = (name, product, bare) => {
  console.log(formatFigure(name, { product, bare }, explained));
  count++;
};
const begin = performance.now();
process.on('exit', () => client.close());

try {
  const { sandboxes } = await fill();
  // First: later the daemons' memory has room in it from what went before.
  const kib = await measureStalled({ client, daemons, sandboxes: sandboxes.slice(0, stalledClients) });
  show('load-stalled-client', kib);
  const streams = await openStreams(sandboxes);
  await keepRhythm(sandboxes);
  show('load-streams-lost', streams.lost.length);
  failures.push(...streams.lost);
  for (const stream of streams.open) stream.close();
} catch (error) {
  failures.push(error);
} finally {
  await removeFleet(client).catch((error) => failures.push(error));
  note('all removed');
}
for (const error of failures.slice(0, 5)) console.error('failed:', error);
console.log(`${count} figures`);
process.exit(failures.length > 0 ? 1 : 0);

async function fill() {
  const room = status.nodes[0].offer.vcpus;
  if (room < wanted + 16) throw new Error(`the server offers ${room} vCPUs; ${wanted + 16} are needed`);
  const from = performance.now();
  const filled = await fillHost(client, image, wanted, room);
  note(`${wanted} run, ${filled.queued} of them had to queue`);
  show('load-burst', (performance.now() - from) / 1000);
  return filled;
}

async function openStreams(sandboxes) {
  const lost = [];
  const from = performance.now();
  const opened = await Promise.allSettled(
    sandboxes.map(({ gateway }) =>
      client.openStream(gateway, ['/bin/sleep', '100000'], (error) => lost.push(error)),
    ),
  );
  const failed = opened.filter(({ status }) => status === 'rejected').map(({ reason }) => reason);
  show('load-streams-at-once', performance.now() - from);
  show('load-streams-at-once-failures', failed.length);
  failures.push(...failed);
  return { open: opened.flatMap(({ value }) => value ?? []), lost };
}

async function keepRhythm(sandboxes) {
  const createsPerMinute = Number(values['creates-per-minute']);
  // Heaps fill at first; and what is left after a collection is what is kept.
  await runRhythm({ client, image, sandboxes, seconds: seconds / 3, createsPerMinute });
  const memoryBefore = await daemons.collectedMemory();
  await daemons.loops();
  const idle = startIdleLoop();
  const stopLoops = watch(() => daemons.loops(), 1_000);
  const cpuBefore = { client: process.cpuUsage(), daemons: daemons.cpu(), at: performance.now() };
  const { times, callsPerSecond, wantedPerSecond } = await runRhythm({
    client,
    image,
    sandboxes,
    seconds,
    createsPerMinute,
  });
  const tookS = (performance.now() - cpuBefore.at) / 1000;
  const cpu = process.cpuUsage(cpuBefore.client);
  const daemonCpu = daemons.cpu();
  const loops = await stopLoops();
  const bareLoop = await idle();
  const resident = daemons.memory();
  const memory = await daemons.collectedMemory();
  for (const [name, kind] of Object.entries(times)) note(`${name}: ${kind}`);
  const percent = (name) => ((daemonCpu[name] - cpuBefore.daemons[name]) / tookS) * 100;
  const errors = Object.values(times).flatMap((kind) => kind.errors);
  failures.push(...errors, ...loops.flatMap(({ error }) => error ?? []));
  const longest = (name) => Math.max(...loops.map((look) => look[name] ?? 0));
  show('load-errors', errors.length);
  show('load-calls', callsPerSecond, wantedPerSecond);
  show('load-status-p99', times.status.quantile(0.99));
  show('load-exec-p99', times.exec.quantile(0.99));
  show('load-create-p99', times.create.quantile(0.99));
  show('load-loop-control-plane', longest('controlPlane'), bareLoop);
  show('load-loop-node-agent', longest('nodeAgent'), bareLoop);
  const growth = (name) => (memory[name] / memoryBefore[name] - 1) * 100;
  show('load-memory-control-plane', growth('controlPlane'));
  show('load-memory-node-agent', growth('nodeAgent'));
  show('load-cpu-control-plane', percent('controlPlane'));
  show('load-cpu-node-agent', percent('nodeAgent'));
  show('load-cpu-client', (cpu.user + cpu.system) / 1e4 / tookS);
  note(`MiB at the end: ${JSON.stringify(resident)}, collected: ${JSON.stringify(memory)}`);
}
