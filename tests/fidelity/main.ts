/**
 * `make fidelity`, started by tools/fidelity.sh: runs the probes in all places, writes docs/fidelity.md and
 * tests/fidelity/recorded.json, and ends with `N probes, M explained, 0 unexplained`, or with 1.
 *
 *   main.js ROOT LAYER ARCHIVE IMAGE-KEY [--only id,id] [--places plain,sandlot,sandlot-init,runc,gvisor [--page]]
 *
 * With `--only` or without a place nothing is written: such a run is for whoever mends a difference. `--page` after
 * `--places` writes from what earlier runs of the other places have kept.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Probe, probes, probesOfInit } from './catalogue.js';
import { compare, type Judged } from './compare.js';
import { explanations, explanationsWithInit } from './explained.js';
import { buildKit } from './kit.js';
import { isMeant, writePage } from './page.js';
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
  : ['plain', 'sandlot', 'sandlot-init', 'runc', 'gvisor'];

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

/** With `--only` of none of these, the place has nothing to do. */
const idsOfInit = probesOfInit.filter((id) => only.length === 0 || only.includes(id));

const plain = await placeOf('plain', () => runPlainVm(inputs));
const sandlot = await placeOf('sandlot', () => runSandlot(inputs, { init: false }));
// Found, and built if need be, while nothing else runs.
const runtimes = { runc: findRunc(inputs), gvisor: findGvisor(inputs) };
// A boot of systemd is long and the containers are quick: these share the host.
const [sandlotWithInit, others] = await Promise.all([
  idsOfInit.length > 0
    ? placeOf('sandlot-init', () => runSandlot(inputs, { init: true, ids: idsOfInit }))
    : undefined,
  placeOf('runc', () => runFound(runtimes.runc)).then(async (runc) => [
    runc,
    await placeOf('gvisor', () => runFound(runtimes.gvisor)),
  ]),
]);
if (!plain || !sandlot || (idsOfInit.length > 0 && !sandlotWithInit))
  throw new Error('the plain VM and both of Sandlot are needed; run them once without --places');

const judged: Judged<PlaceResult>[] = [
  { place: sandlot, explanations },
  ...(sandlotWithInit ? [{ place: sandlotWithInit, explanations: explanationsWithInit }] : []),
];
const used = judged.map(() => new Set<string>());

/** Compares one probe in all places that are judged, and prints what nobody explains. */
function judge(probe: Probe, value: string): 'same' | 'explained' | 'unexplained' {
  const verdicts = judged.map(({ place, explanations }, at) => {
    if (!isMeant(place, probe)) return 'same';
    const comparison = compare(probe, value, place.values.get(probe.id) ?? 'did not run', explanations);
    for (const why of comparison.why) used[at]?.add(why);
    if (comparison.same) return 'same';
    if (comparison.unexplained.length === 0) return 'explained';
    console.log(
      `${probe.id}, ${place.name}: ${comparison.unexplained.length} differing lines are not explained:`,
    );
    for (const line of comparison.unexplained.slice(0, 40)) console.log(`    ${line}`);
    return 'unexplained';
  });
  return (
    verdicts.find((one) => one === 'unexplained') ?? verdicts.find((one) => one === 'explained') ?? 'same'
  );
}

let explained = 0;
let unexplained = 0;
let count = 0;
for (const probe of probes) {
  const value = plain.values.get(probe.id);
  if (only.length > 0 && !only.includes(probe.id)) continue;
  count++;
  if (value === undefined || (probe.expect && !probe.expect.test(value))) {
    unexplained++;
    console.log(`${probe.id}: the plain VM itself shows ${JSON.stringify(value)}, not ${probe.expect}`);
    continue;
  }
  const verdict = judge(probe, value);
  if (verdict === 'explained') explained++;
  if (verdict === 'unexplained') unexplained++;
}
if (only.length === 0)
  for (const [at, { place, explanations }] of judged.entries())
    for (const { probe, why } of explanations)
      if (!used[at]?.has(why)) {
        unexplained++;
        console.log(`explained.ts: the entry for ${probe}, ${place.name} explains nothing any more: ${why}`);
      }

if (only.length === 0 && (!options.includes('--places') || options.includes('--page'))) {
  const page = writePage({
    ...{ plain, judged },
    places: [sandlot, sandlotWithInit, ...others].filter((place) => place !== undefined),
    date: new Date().toISOString().slice(0, 10),
    kernel: plain.values.get('kernel-name')?.split(' ')[1] ?? 'unknown',
    image: `Debian 12 by tools/images/build-debian-vm.sh (${imageKey})`,
  });
  writeFileSync(join(root, 'docs/fidelity.md'), page);
  const recorded = Object.fromEntries(probes.map(({ id }) => [id, plain.values.get(id) ?? null]));
  writeFileSync(join(root, 'tests/fidelity/recorded.json'), `${JSON.stringify(recorded, null, 2)}\n`);
}
for (const { name, times } of [plain, ...judged.map(({ place }) => place)])
  say(
    `${name}, slowest: ${[...times]
      .sort((a, b) => b[1] - a[1])
      .slice(0, 6)
      .map(([id, ms]) => `${id} ${ms} ms`)}`,
  );
console.log(`${count} probes, ${explained} explained, ${unexplained} unexplained`);
process.exitCode = unexplained > 0 ? 1 : 0;
