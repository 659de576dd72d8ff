/** Networks on a real kernel: namespaces, rules, taps, DNS proxy, with a guest that is emulated without QEMU. */
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LabGuest, type LabHost, type LabNetwork, NetworkLab } from './network-lab.js';

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.warn('network tests skipped: they make namespaces, which needs root');

describe.skipIf(!isRoot)('networks with a tap', { timeout: 60_000 }, () => {
  let lab: NetworkLab;
  let host: LabHost;
  let network: LabNetwork;
  let guest: LabGuest;

  beforeAll(async () => {
    lab = await NetworkLab.open();
    host = lab.openHost({ instanceId: 'a001' });
    await host.start();
    network = await host.acquire();
    guest = await lab.startGuest(network);
  }, 60_000);

  afterAll(async () => {
    await host?.close('remove');
    await lab?.close();
    const left = readdirSync('/run/netns').filter((name) => name.startsWith('sla001-'));
    expect(left).toEqual([]);
    console.log(host.times.map(({ op, ms }) => `${op} ${ms}`).join(', '));
  });

  it('reaches nothing before a policy, and the world with policy all', async () => {
    const probes = [
      { name: 'world', kind: 'tcp', host: '198.51.100.2', port: 80 },
      { name: 'dns', kind: 'dns', host: 'a.allowed.test' },
    ] as const;
    const before = await guest.probe([...probes]);
    expect([...before.values()].filter((result) => result.reached)).toEqual([]);
    await host.apply(network, { denylist: [] });
    const after = await guest.probe([...probes]);
    expect(after.get('world')?.answer).toEqual(['world 198.51.100.2 80']);
    expect(after.get('dns')?.answer).toEqual(['198.51.100.2']);
  });
});
