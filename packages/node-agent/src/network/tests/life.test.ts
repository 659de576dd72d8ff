/** The life of networks on a real kernel: pool, crash and adoption, half-made ones, two instances, what is put back. */
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type LabHost, labAddresses, listLeftovers, NetworkLab, run } from './network-lab.js';

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.warn('network tests skipped: they make namespaces, which needs root');

describe.skipIf(!isRoot)('life of networks', { timeout: 60_000 }, () => {
  let lab: NetworkLab;
  const hosts: LabHost[] = [];

  beforeEach(async () => {
    lab = await NetworkLab.open();
  });

  afterEach(async () => {
    for (const host of hosts.splice(0)) await host.close('remove').catch(() => undefined);
    const rules = lab.runOnHost(['nft', 'list', 'tables']);
    const forwarding = lab.runOnHost(['cat', '/proc/sys/net/ipv4/ip_forward']).trim();
    const addresses = lab.runOnHost(['ip', '-4', '-br', 'addr', 'show', 'dev', 'lo']);
    await lab.close();
    expect(rules).toBe('');
    expect(forwarding).toBe('0');
    expect(addresses).not.toContain('10.77.');
    expect(listLeftovers('a3')).toEqual([]);
  });

  async function openHost(options: Parameters<NetworkLab['openHost']>[0]): Promise<LabHost> {
    const host = lab.openHost(options);
    hosts.push(host);
    await host.start();
    return host;
  }

  /** Index of every namespace and link of an instance. */
  function listIndices(instanceId: string): { namespaces: number[]; links: number[] } {
    const numbers = (text: string, pattern: RegExp): number[] =>
      [...text.matchAll(pattern)].map((match) => Number(match[1])).sort((a, b) => a - b);
    return {
      namespaces: numbers(run('ip', 'netns', 'list'), new RegExp(`^sl${instanceId}-(\\d+)`, 'gm')),
      links: numbers(lab.runOnHost(['ip', '-br', 'link']), new RegExp(`^sl${instanceId}v(\\d+)`, 'gm')),
    };
  }

  it('fills its pool, gives each network once, and measures', async () => {
    const host = await openHost({ instanceId: 'a301', poolSize: 3 });
    await expect.poll(() => listIndices('a301').namespaces.length, { timeout: 10_000 }).toBe(3);
    const seen = new Set<number>();
    for (let n = 0; n < 10; n += 1) {
      const network = await host.acquire();
      expect(seen.has(network.handle.index)).toBe(false);
      seen.add(network.handle.index);
      expect(network.runAs.uid).toBe(2_000_000 + network.handle.index);
      await host.apply(network, { denylist: [] });
      await host.release(network);
      await host.release(network);
    }
    const burst = await Promise.all(Array.from({ length: 8 }, () => host.acquire()));
    expect(new Set(burst.map((network) => network.nodeAddress)).size).toBe(8);
    await Promise.all(burst.map((network) => host.release(network)));
    await expect.poll(() => listIndices('a301').namespaces.length, { timeout: 10_000 }).toBe(3);
    await host.reap();
    expect(listIndices('a301').namespaces.length).toBe(3);
    const median = (op: string): number => {
      const all = host.times.filter((time) => time.op === op && time.ms > 0.1).map(({ ms }) => ms);
      return all.sort((a, b) => a - b)[all.length >> 1] ?? 0;
    };
    console.log(`ms: acquire ${median('acquire')}, apply ${median('apply')}, release ${median('release')}`);
  });

  it('adopts after a crash with policy and names, and reaps the rest', async () => {
    const first = await openHost({ instanceId: 'a302', poolSize: 2 });
    const kept = await first.acquire();
    const lost = await first.acquire();
    const guest = await lab.startGuest(kept);
    await first.apply(kept, { allowlist: ['exact.test', '198.51.100.2'] });
    const ask = { name: 'dns', kind: 'dns', host: 'exact.test' } as const;
    const probes = [2, 3, 6].map((n) => ({
      name: `${n}`,
      kind: 'tcp' as const,
      host: `198.51.100.${n}`,
      port: 80,
    }));
    expect((await guest.probe([ask])).get('dns')?.answer).toEqual(['198.51.100.6']);
    await expect.poll(() => listIndices('a302').namespaces.length, { timeout: 10_000 }).toBe(4);
    await first.kill();

    const second = await openHost({ instanceId: 'a302', poolSize: 0 });
    const adopted = await second.adopt(kept.handle.index);
    expect(adopted).toEqual(kept);
    expect(await second.adopt(3999)).toBeUndefined();
    await second.reap();
    expect(listIndices('a302')).toEqual({ namespaces: [kept.handle.index], links: [kept.handle.index] });
    expect(lost.handle.index).not.toBe(kept.handle.index);
    const results = await guest.probe([...probes, ask, { ...ask, name: 'foreign', host: 'x.other.test' }]);
    expect([...results.values()].filter((result) => result.reached).map((result) => result.name)).toEqual([
      '2',
      '6',
      'dns',
    ]);
    // The address that was resolved before the crash stays with its name through a change of policy.
    await second.apply(kept, { allowlist: ['exact.test'] });
    const after = await guest.probe(probes);
    expect([...after.values()].filter((result) => result.reached).map((result) => result.name)).toEqual([
      '6',
    ]);
    const another = await second.acquire();
    expect(another.handle.index).not.toBe(kept.handle.index);
  });

  it('finds and removes what a killed maker left', async () => {
    const host = await openHost({ instanceId: 'a303', poolSize: 0 });
    await host.kill();
    // As after a kill in mid-work: a namespace with a link and no rules, one with a name only, a link only.
    run('ip', 'netns', 'add', 'sla303-7');
    lab.runOnHost([
      'ip',
      'link',
      'add',
      'sla303v7',
      'type',
      'veth',
      'peer',
      'name',
      'up0',
      'netns',
      'sla303-7',
    ]);
    run('ip', 'netns', 'add', 'sla303-8');
    lab.runOnHost(['ip', 'link', 'add', 'sla303v9', 'type', 'veth', 'peer', 'name', 'slt-peer']);
    const again = await openHost({ instanceId: 'a303', poolSize: 0 });
    expect(await again.adopt(7)).toBeUndefined();
    await again.reap();
    expect(listIndices('a303')).toEqual({ namespaces: [], links: [] });
  });

  it('cuts off a process that is still in a namespace when it is released', async () => {
    const host = await openHost({ instanceId: 'a312', poolSize: 0 });
    const network = await host.acquire();
    const guest = await lab.startGuest(network);
    const stay = lab.spawnOnHost(['nsenter', `--net=${network.machine.netnsPath}`, 'sleep', '30']);
    await host.apply(network, { denylist: [] });
    await host.release(network);
    expect(listIndices('a312')).toEqual({ namespaces: [], links: [] });
    const results = await guest.probe([{ name: 'world', kind: 'tcp', host: '198.51.100.2', port: 80 }]);
    expect(results.get('world')?.reached).toBe(false);
    expect(stay.exitCode).toBeNull();
    stay.kill();
    await guest.stop();
  });

  it('keeps two instances apart, and forwarding until the last is gone', async () => {
    const [one, two] = [
      await openHost({ instanceId: 'a304', poolSize: 0 }),
      await openHost({ instanceId: 'a305', poolSize: 0 }),
    ];
    const [a, b] = [await one.acquire(), await two.acquire()];
    expect(a.nodeAddress.startsWith('10.77.0.')).toBe(true);
    expect(b.nodeAddress.startsWith('10.77.16.')).toBe(true);
    expect(b.runAs.uid).toBe(a.runAs.uid + 4096);
    const guest = await lab.startGuest(b);
    await two.apply(b, { denylist: [] });
    await one.apply(a, { denylist: [] });
    await two.reap();
    expect(listIndices('a304').namespaces).toEqual([a.handle.index]);
    await one.close('remove');
    hosts.shift();
    const results = await guest.probe([
      { name: 'world', kind: 'tcp', host: '198.51.100.2', port: 80 },
      { name: 'dns', kind: 'dns', host: 'exact.test' },
      { name: 'other instance', kind: 'tcp', host: a.nodeAddress, port: 9000 },
    ]);
    expect([...results.values()].filter((result) => result.reached).map((result) => result.name)).toEqual([
      'world',
      'dns',
    ]);
    expect(listIndices('a304')).toEqual({ namespaces: [], links: [] });
    await guest.stop();
  });

  it('close keep leaves what is in use, and the same subnet comes back', async () => {
    const first = await openHost({ instanceId: 'a306', poolSize: 2 });
    const used = await first.acquire();
    const [proxy] = (await first.state()).processes;
    await first.close('keep');
    hosts.pop();
    expect(listIndices('a306').namespaces).toEqual([used.handle.index]);
    expect(() => process.kill(proxy!.pid, 0)).toThrow();
    const second = await openHost({ instanceId: 'a306', poolSize: 0 });
    expect(await second.adopt(used.handle.index)).toEqual(used);
  });

  it('opens host ports and private ranges when the operator says so', async () => {
    const host = await openHost({
      instanceId: 'a307',
      poolSize: 0,
      allowPrivate: ['192.168.7.0/24'],
      allowHostPorts: [7005],
    });
    const network = await host.acquire();
    const guest = await lab.startGuest(network);
    await host.apply(network, { denylist: [] });
    const server = lab.spawnOnHost([
      'python3',
      '-c',
      'import socket\ns=socket.create_server(("0.0.0.0",7005))\nprint("ready",flush=True)\nwhile 1: s.accept()[0].sendall(b"host\\n")',
    ]);
    await new Promise((resolve) => server.stdout.once('data', resolve));
    const probes = [
      { name: 'host port', kind: 'tcp', host: '10.77.15.254', port: 7005 },
      { name: 'by uplink', kind: 'tcp', host: labAddresses.hostUplink, port: 7005 },
      { name: 'opened', kind: 'tcp', host: '192.168.7.7', port: 80 },
      { name: 'closed', kind: 'tcp', host: '10.9.9.9', port: 80 },
    ] as const;
    const reached = async (): Promise<string[]> =>
      [...(await guest.probe([...probes])).values()]
        .filter((result) => result.reached)
        .map((result) => result.name);
    expect(await reached()).toEqual(['host port', 'opened']);
    await host.apply(network, { allowlist: ['exact.test'] });
    expect(await reached()).toEqual([]);
    await host.apply(network, { allowlist: ['10.77.15.254:7005'] });
    expect(await reached()).toEqual(['host port']);
  });

  it('bounds the connections of one sandbox', async () => {
    const host = await openHost({ instanceId: 'a310', poolSize: 0, maxConnections: 5 });
    const network = await host.acquire();
    const guest = await lab.startGuest(network);
    await host.apply(network, { denylist: [] });
    const probes = Array.from({ length: 12 }, (_, n) => ({
      name: `${n}`,
      kind: 'tcp' as const,
      host: '198.51.100.2',
      port: 9001,
    }));
    const results = [...(await guest.probe(probes)).values()];
    expect(results.filter((result) => result.reached)).toHaveLength(5);
    expect(new Set(results.filter((result) => !result.reached).map((result) => result.outcome))).toEqual(
      new Set(['prohibited']),
    );
  });

  it('takes everything back when its start fails', async () => {
    const address = ['10.77.15.254/32', 'dev', 'lo'];
    lab.runOnHost(['ip', 'link', 'set', 'lo', 'up']);
    // Somebody else's service on the address that the first instance takes; no address of it is in use.
    const squatter = lab.spawnOnHost([
      'python3',
      '-c',
      'import socket,sys\ns=socket.create_server(("0.0.0.0",53))\nprint("ready",flush=True)\nsys.stdin.read()',
    ]);
    await new Promise((resolve) => squatter.stdout.once('data', resolve));
    const host = lab.openHost({ instanceId: 'a311', poolSize: 0 });
    await expect(host.start()).rejects.toMatchObject({
      code: 'setup-failed',
      message: expect.stringContaining('EADDRINUSE'),
    });
    await host.kill();
    expect(lab.runOnHost(['ip', '-4', '-br', 'addr', 'show', 'dev', 'lo'])).not.toContain(address[0]);
  });

  it('works without a way out, and says so', async () => {
    lab.runOnHost(['ip', 'route', 'del', 'default']);
    const host = await openHost({ instanceId: 'a308', poolSize: 1 });
    expect((await host.state()).warnings).toEqual([expect.stringContaining('no default route')]);
    const network = await host.acquire();
    await host.apply(network, { denylist: [] });
    expect(readFileSync(`/proc/${(await host.state()).processes[0]!.pid}/comm`, 'utf8')).toBeTruthy();
  });

  it('warns of a foreign firewall', async () => {
    const chain = '{ type filter hook forward priority 0; policy drop; }';
    lab.runOnHost(['nft', 'add', 'table', 'ip', 'foreign']);
    lab.runOnHost(['nft', 'add', 'chain', 'ip', 'foreign', 'gate', chain]);
    const host = await openHost({ instanceId: 'a309', poolSize: 0 });
    expect((await host.state()).warnings).toEqual([expect.stringContaining('ip foreign gate')]);
    lab.runOnHost(['nft', 'delete', 'table', 'ip', 'foreign']);
  });
});
