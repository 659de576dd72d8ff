/** A dozen cheap probes of the fidelity table against what `make fidelity` has recorded of the plain Debian VM. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { inCheckout } from '../driver/checkout.js';
import { TestNode } from '../driver/test-node.js';
import { probes } from '../fidelity/catalogue.js';
import { compare } from '../fidelity/compare.js';
import { explanations } from '../fidelity/explained.js';
import { buildKit } from '../fidelity/kit.js';
import { guestFolder, ResultLines } from '../fidelity/places/place.js';

/** Programs alone, which need nothing of the image; together a few seconds in an emulated guest. */
const cheap = [
  ...['limits', 'capabilities', 'signals', 'inherited', 'propagation', 'tmp', 'orphan', 'landlock'],
  ...[
    'bpf-map',
    'io-uring-nop',
    'userns-all',
    'idmapped-mount',
    'overlay',
    'tun',
    'ping-socket',
    'pty',
    'rtc',
  ],
];
const recorded = JSON.parse(readFileSync(inCheckout('tests/fidelity/recorded.json'), 'utf8')) as Record<
  string,
  string | null
>;

let node: TestNode;
let folder: string;
const results = new ResultLines();

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'slt-fidelity-'));
  const wanted = probes.filter(({ id }) => cheap.includes(id));
  buildKit(inCheckout('tests/fidelity/guest'), folder, wanted);
  node = await TestNode.start();
  const sandbox = await node.create({ memoryMiB: 1024 });
  for (const name of readdirSync(folder))
    await sandbox.files.uploadFile(join(folder, name), `${guestFolder}/${name}`);
  await sandbox.out(`chmod -R +x ${guestFolder}`);
  results.addAll(await sandbox.out(`python3 ${guestFolder}/run.py ${guestFolder}`, { timeoutMs: 100_000 }));
});
afterAll(async () => {
  await node?.close();
  rmSync(folder, { recursive: true, force: true });
});

it('all probes have run', () => {
  expect(results.ended).toBe(true);
  expect([...results.values.keys()].sort()).toEqual([...cheap].sort());
});

it.each(cheap)('%s is as on the plain VM, or explained', (id) => {
  const probe = probes.find((one) => one.id === id)!;
  const comparison = compare(probe, recorded[id] ?? '', results.values.get(id) ?? '', explanations);
  expect(comparison.unexplained).toEqual([]);
});
