/**
 * `make fidelity`, started by tools/fidelity.sh: runs the probes in all places, writes docs/fidelity.md and
 * tests/fidelity/recorded.json, and ends with `N probes, M explained, 0 unexplained`, or with 1.
 *
 *   main.js ROOT LAYER ARCHIVE IMAGE-KEY [--only id,id] [--places plain,sandlot,runc,gvisor [--page]]
 *
 * With `--only` or without a place nothing is written: such a run is for whoever mends a difference. `--page` after
 * `--places` writes from what earlier runs of the other places have kept.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { probes } from './catalogue.js';
import { compare } from './compare.js';
import { explanations } from './explained.js';
import { buildKit } from './kit.js';
import { writePage } from './page.js';
import { runContainer } from './places/container.js';
import type { Inputs, PlaceResult } from './places/place.js';
import { runPlainVm } from './places/plain-vm.js';
import { type Found, findGvisor, findRunc } from './places/runtimes.js';
import { runSandlot } from './places/sandlot.js';

const [root = '', layer = '', archive = '', imageKey = '', ...options] = process.argv.slice(2);
const begun = performance.now();
const say = (text: string) =>
  process.stderr.write(`[fidelity] ${Math.round((performance.now() - begun) / 1000)} s: ${text}\n`);
const option = (name: string) => options[options.indexOf(`--${name}`) + 1]?.split(',');
const only = options.includes('--only') ? (option('only') ?? []) : [];
const wanted = options.includes('--places')
  ? (option('places') ?? [])
  : ['plain', 'sandlot', 'runc', 'gvisor'];

const cache = join(root, '.cache/fidelity');
const inputs: Inputs = {
  ...{ root, layer, archive, imageKey, cache, only, say },
  kit: join(cache, 'kit'),
  memoryMiB: 1024,
  vcpus: 2,
  timeoutMs: 1_500_000,
};
buildKit(join(root, 'tests/fidelity/guest'), inputs.kit, probes);

/** A container runtime that fails altogether is a column without values, with the reason. */
async function runFound(found: Found): Promise<PlaceResult> {
  const none = { name: found.name, about: '', values: new Map(), times: new Map() };
  if ('missing' in found) return { ...none, missing: found.missing };
  try {
    return await runContainer(inputs, found);
  } catch (error) {
    return { ...none, missing: (error as Error).message.slice(0, 300) };
  }
}

/** A run kept by an earlier one with `--places`, so that one place can be looked at alone. */
async function placeOf(key: string, run: () => Promise<PlaceResult>): Promise<PlaceResult | undefined> {
  const kept = join(cache, `result-${key}.json`);
  if (wanted.includes(key)) {
    say(`${key}: starting`);
    const result = await run();
    say(`${key}: ${result.missing ? `missing: ${result.missing}` : `${result.values.size} results`}`);
    if (only.length === 0)
      writeFileSync(
        kept,
        JSON.stringify({ ...result, values: [...result.values], times: [...result.times] }),
      );
    return result;
  }
  try {
    const result = JSON.parse(readFileSync(kept, 'utf8')) as PlaceResult & { values: []; times: [] };
    return { ...result, values: new Map(result.values), times: new Map(result.times) };
  } catch {
    return undefined;
  }
}

const plain = await placeOf('plain', () => runPlainVm(inputs));
const sandlot = await placeOf('sandlot', () => runSandlot(inputs));
if (!plain || !sandlot)
  throw new Error('the plain VM and Sandlot are needed; run them once without --places');
const others = [
  await placeOf('runc', () => runFound(findRunc(inputs))),
  await placeOf('gvisor', () => runFound(findGvisor(inputs))),
].filter((place) => place !== undefined);

let explained = 0;
let unexplained = 0;
let count = 0;
const used = new Set<string>();
for (const probe of probes) {
  const value = plain.values.get(probe.id);
  if (only.length > 0 && !only.includes(probe.id)) continue;
  count++;
  if (value === undefined || (probe.expect && !probe.expect.test(value))) {
    unexplained++;
    console.log(`${probe.id}: the plain VM itself shows ${JSON.stringify(value)}, not ${probe.expect}`);
    continue;
  }
  const here = sandlot.values.get(probe.id) ?? 'did not run';
  const comparison = compare(probe, value, here, explanations);
  for (const why of comparison.why) used.add(why);
  if (comparison.same) continue;
  if (comparison.unexplained.length === 0) explained++;
  else {
    unexplained++;
    console.log(`${probe.id}: ${comparison.unexplained.length} differing lines are not explained:`);
    for (const line of comparison.unexplained.slice(0, 40)) console.log(`    ${line}`);
  }
}
if (only.length === 0)
  for (const { probe, why } of explanations)
    if (!used.has(why)) {
      unexplained++;
      console.log(`explained.ts: the entry for ${probe} explains nothing any more: ${why}`);
    }

if (only.length === 0 && (wanted.length === 4 || options.includes('--page'))) {
  const page = writePage({
    ...{ plain, places: [sandlot, ...others], judged: sandlot, explanations },
    date: new Date().toISOString().slice(0, 10),
    kernel: plain.values.get('kernel-name')?.split(' ')[1] ?? 'unknown',
    image: `Debian 12 by tools/images/build-debian-vm.sh (${imageKey})`,
  });
  writeFileSync(join(root, 'docs/fidelity.md'), page);
  const recorded = Object.fromEntries(probes.map(({ id }) => [id, plain.values.get(id) ?? null]));
  writeFileSync(join(root, 'tests/fidelity/recorded.json'), `${JSON.stringify(recorded, null, 2)}\n`);
}
say(
  `slowest: ${[...sandlot.times]
    .sort((a, b) => b[1] - a[1])
    .slice(0, 6)
    .map(([id, ms]) => `${id} ${ms} ms`)}`,
);
console.log(`${count} probes, ${explained} explained, ${unexplained} unexplained`);
process.exitCode = unexplained > 0 ? 1 : 0;
