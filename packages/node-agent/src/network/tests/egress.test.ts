/** Egress policies and the DNS proxy on a real kernel, seen from a guest that is emulated without QEMU. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NetworkProbe } from '../network-probes.js';
import { type LabGuest, type LabHost, type LabNetwork, listLeftovers, NetworkLab } from './network-lab.js';

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.warn('network tests skipped: they make namespaces, which needs root');

const tcp = (host: string, port: number): NetworkProbe => ({
  name: `${host}:${port}`,
  kind: 'tcp',
  host,
  port,
});
const udp = (host: string, port: number): NetworkProbe => ({
  name: `${host}:${port}/udp`,
  kind: 'udp',
  host,
  port,
});
const dns = (host: string, more: Partial<NetworkProbe> = {}): NetworkProbe => ({
  name: host,
  kind: 'dns',
  host,
  ...more,
});

describe.skipIf(!isRoot)('egress policies', { timeout: 30_000 }, () => {
  let lab: NetworkLab;
  let host: LabHost;
  let network: LabNetwork;
  let guest: LabGuest;

  /** Names of the probes that reached something, in order. */
  async function reached(...probes: NetworkProbe[]): Promise<string[]> {
    const results = await guest.probe(probes);
    return [...results.values()].filter((result) => result.reached).map((result) => result.name);
  }

  async function resolve(probe: NetworkProbe): Promise<{ outcome: string; answer: string[] }> {
    const { outcome, answer } = (await guest.probe([probe])).get(probe.name)!;
    return { outcome, answer };
  }

  beforeAll(async () => {
    lab = await NetworkLab.open();
    host = lab.openHost({ instanceId: 'a201', poolSize: 0, runDnsAs: { uid: 65534, gid: 65534 } });
    await host.start();
    network = await host.acquire();
    guest = await lab.startGuest(network);
  }, 60_000);

  afterAll(async () => {
    await host?.close('remove');
    await lab?.close();
    expect(listLeftovers('a201')).toEqual([]);
  });

  it('reaches nothing and resolves nothing before the first policy', async () => {
    expect(await reached(tcp('198.51.100.2', 80), udp('198.51.100.2', 443), dns('exact.test'))).toEqual([]);
  });

  it('all: everything public, any resolver that the guest names, large answers', async () => {
    await host.apply(network, { denylist: [] });
    expect(await reached(tcp('198.51.100.2', 80), udp('198.51.100.2', 443), tcp('192.168.7.7', 80))).toEqual([
      '198.51.100.2:80',
      '198.51.100.2:443/udp',
    ]);
    expect(await resolve(dns('A.allowed.test'))).toEqual({ outcome: 'ok', answer: ['198.51.100.2'] });
    expect(await resolve(dns('gone.test'))).toEqual({ outcome: 'no-such-name', answer: [] });
    expect(await resolve(dns('exact.test', { overTcp: true }))).toEqual({
      outcome: 'ok',
      answer: ['198.51.100.6'],
    });
    expect(await resolve(dns('exact.test', { server: '198.51.100.1' }))).toEqual({
      outcome: 'ok',
      answer: ['198.51.100.6'],
    });
    expect((await resolve(dns('large.test'))).answer).toHaveLength(200);
    expect(lab.worldLog.filter((line) => line.startsWith('stray'))).toEqual([]);
  });

  it('none: new connections fail at once, old ones go on', async () => {
    const talk = guest.spawn(['python3', '-c', talkProgram]);
    let answers = '';
    talk.stdout.on('data', (part: Buffer) => {
      answers += part.toString();
    });
    await host.apply(network, { denylist: [] });
    talk.stdin.write('one\n');
    await expect.poll(() => answers, { timeout: 5_000 }).toBe('connected\n');
    await host.apply(network, { allowlist: [] });
    talk.stdin.write('two\n');
    await expect.poll(() => answers, { timeout: 5_000 }).toBe('connected\nok\n');
    const results = await guest.probe([tcp('198.51.100.2', 80), dns('exact.test')]);
    expect(results.get('198.51.100.2:80')).toMatchObject({ reached: false, outcome: 'prohibited' });
    expect(results.get('198.51.100.2:80')!.ms).toBeLessThan(500);
    expect(results.get('exact.test')).toMatchObject({ reached: false, outcome: 'refused-name' });
    talk.kill();
  });

  it('allow list of addresses, with and without ports', async () => {
    await host.apply(network, {
      allowlist: ['198.51.100.2', '198.51.100.4/31:443', '198.51.100.6:80-443', '192.168.7.7:80'],
    });
    const probes = [
      ...[80, 443, 9000].map((port) => tcp('198.51.100.2', port)),
      ...[80, 443].map((port) => tcp('198.51.100.5', port)),
      ...[22, 80, 443, 853].map((port) => tcp('198.51.100.6', port)),
      udp('198.51.100.5', 443),
      tcp('198.51.100.3', 443),
      tcp('192.168.7.7', 80),
      tcp('192.168.7.7', 443),
      tcp('10.9.9.9', 80),
    ];
    expect(await reached(...probes)).toEqual([
      '198.51.100.2:80',
      '198.51.100.2:443',
      '198.51.100.2:9000',
      '198.51.100.5:443',
      '198.51.100.6:80',
      '198.51.100.6:443',
      '198.51.100.5:443/udp',
      '192.168.7.7:80',
    ]);
    expect(await resolve(dns('exact.test'))).toEqual({ outcome: 'refused-name', answer: [] });
  });

  it('a list that is as wide as everything does not open private space or the node', async () => {
    await host.apply(network, { allowlist: ['0.0.0.0/0'] });
    expect(
      await reached(tcp('198.51.100.2', 80), tcp('192.168.7.7', 80), tcp('169.254.169.254', 80)),
    ).toEqual(['198.51.100.2:80']);
  });

  it('deny list of addresses and names', async () => {
    await host.apply(network, {
      denylist: ['198.51.100.2', '198.51.100.3:80', 'x.other.test', '*.allowed.test'],
    });
    expect(
      await reached(
        tcp('198.51.100.2', 80),
        tcp('198.51.100.3', 80),
        tcp('198.51.100.3', 443),
        tcp('192.168.7.7', 80),
      ),
    ).toEqual(['198.51.100.3:443']);
    for (const name of ['x.other.test', 'a.allowed.test', 'alias-of-denied.test']) {
      expect(await resolve(dns(name))).toEqual({ outcome: 'refused-name', answer: [] });
    }
    expect((await resolve(dns('exact.test'))).answer).toEqual(['198.51.100.6']);
  });

  it('allow list of names: exact, wildcard, alias, ports; no tunnel, no rebinding', async () => {
    await host.apply(network, { allowlist: ['*.allowed.test', 'exact.test', 'ports.test:443', 'gone.test'] });
    expect(await reached(tcp('198.51.100.2', 80))).toEqual([]);
    const asked = lab.worldLog.length;
    expect(await resolve(dns('a.allowed.test'))).toEqual({ outcome: 'ok', answer: ['198.51.100.2'] });
    expect(await resolve(dns('b.allowed.test'))).toEqual({ outcome: 'ok', answer: ['198.51.100.3'] });
    expect(await resolve(dns('evil.allowed.test'))).toEqual({ outcome: 'ok', answer: ['198.51.100.4'] });
    expect(await resolve(dns('inside.allowed.test'))).toEqual({ outcome: 'ok', answer: [] });
    expect((await resolve(dns('ports.test'))).answer).toEqual(['198.51.100.8']);
    expect((await resolve(dns('exact.test', { overTcp: true }))).answer).toEqual(['198.51.100.6']);
    expect(await resolve(dns('gone.test'))).toEqual({ outcome: 'no-such-name', answer: [] });
    const refused = ['allowed.test', 'sub.exact.test', 'x.other.test', 'secret.x.other.test'];
    for (const name of refused) expect((await resolve(dns(name))).outcome).toBe('refused-name');
    for (const type of [16, 28, 65])
      expect(await resolve(dns('exact.test', { type }))).toEqual({ outcome: 'ok', answer: [] });
    expect(await resolve(dns('x.other.test', { type: 16 }))).toEqual({ outcome: 'refused-name', answer: [] });
    // What is refused is not asked anywhere: a name would carry data out.
    const outside = lab.worldLog.slice(asked).filter((line) => /^dns/.test(line));
    expect(outside.filter((line) => refused.some((name) => line.startsWith(`dns ${name} `)))).toEqual([]);
    expect(
      await reached(
        ...[2, 3, 4, 6].map((n) => tcp(`198.51.100.${n}`, 9000)),
        ...[80, 443].map((port) => tcp('198.51.100.8', port)),
        tcp('198.51.100.5', 80),
        tcp('198.51.100.7', 80),
        tcp('192.168.7.7', 80),
      ),
    ).toEqual([
      '198.51.100.2:9000',
      '198.51.100.3:9000',
      '198.51.100.4:9000',
      '198.51.100.6:9000',
      '198.51.100.8:443',
    ]);
  });

  it('keeps the addresses of names that stay allowed', async () => {
    await host.apply(network, { allowlist: ['exact.test', 'x.other.test'] });
    expect(await reached(tcp('198.51.100.6', 80), tcp('198.51.100.2', 80), tcp('198.51.100.8', 443))).toEqual(
      ['198.51.100.6:80'],
    );
  });

  it('refuses a malformed list and keeps what is in force', async () => {
    await host.apply(network, { allowlist: ['198.51.100.2'] });
    await expect(host.apply(network, { allowlist: ['http://exact.test'] })).rejects.toMatchObject({
      code: 'invalid-policy',
    });
    expect(await reached(tcp('198.51.100.2', 80), tcp('198.51.100.3', 80))).toEqual(['198.51.100.2:80']);
  });

  it('the kernel takes every well-formed policy', async () => {
    const octet = fc.integer({ min: 1, max: 200 });
    const address = fc.tuple(octet, octet).map(([c, d]) => `198.${c}.${d}.0/${16 + (d % 17)}`);
    const name = fc
      .tuple(fc.constantFrom('', '*.'), fc.constantFrom('a.test', 'b.test', 'c-d.test'))
      .map((parts) => parts.join(''));
    const ports = fc.constantFrom('', ':80', ':443', ':80-443', ':1-65535');
    const place = fc.oneof(
      address,
      name,
      fc.constantFrom('10.0.0.0/8', '10.1.0.0/16', '0.0.0.0/0', '0.0.0.0/1'),
    );
    const entry = fc.tuple(place, ports).map((parts) => parts.join(''));
    const denied = fc.oneof(
      fc.tuple(address, ports).map((parts) => parts.join('')),
      name,
    );
    const policy = fc.oneof(
      fc.array(entry, { maxLength: 12 }).map((allowlist) => ({ allowlist })),
      fc.array(denied, { maxLength: 12 }).map((denylist) => ({ denylist })),
    );
    for (const lists of fc.sample(policy, { numRuns: 25, seed: 7 })) await host.apply(network, lists);
    const most = Array.from({ length: 256 }, (_, n) =>
      n % 2 ? `h${n}.test:${n + 1}` : `198.51.${n}.0/24:${n + 1}`,
    );
    await host.apply(network, { allowlist: most });
  });

  it('never breaks a connection to an address that both the old and the new list admit', async () => {
    const storm = guest.spawn(['python3', '-c', stormProgram]);
    let out = '';
    storm.stdout.on('data', (part: Buffer) => {
      out += part.toString();
    });
    // Long enough for the interpreter of the guest to start on a busy host.
    const until = performance.now() + 3_000;
    for (let n = 0; n < 15 || performance.now() < until; n += 1)
      await host.apply(network, { allowlist: ['198.51.100.2', `198.51.100.${3 + (n % 4)}`] });
    storm.stdin.end();
    await new Promise((resolveEnd) => storm.once('close', resolveEnd));
    const { connected, failed } = JSON.parse(out) as { connected: number; failed: number };
    expect(failed).toBe(0);
    expect(connected).toBeGreaterThan(20);
  });

  it('holds the DNS proxy with no right but to bind its port, and starts it again when it dies', async () => {
    const [before] = (await host.state()).processes;
    expect(before?.role).toBe('dns-proxy');
    const status = readFileSync(`/proc/${before!.pid}/status`, 'utf8');
    expect(status).toMatch(/^Uid:\t65534\t65534\t65534\t65534$/m);
    expect(status).toMatch(/^Groups:\s*$/m);
    // CAP_NET_BIND_SERVICE is bit 10.
    for (const set of ['Eff', 'Prm', 'Bnd']) expect(status).toMatch(new RegExp(`^Cap${set}:\\t0+400$`, 'm'));
    expect(status).toMatch(/^NoNewPrivs:\t1$/m);
    await host.apply(network, { allowlist: ['exact.test'] });
    process.kill(before!.pid, 'SIGKILL');
    await expect
      .poll(async () => (await host.state()).processes[0]?.pid ?? before!.pid, { timeout: 10_000 })
      .not.toBe(before!.pid);
    await expect
      .poll(async () => (await resolve(dns('exact.test'))).answer, { timeout: 10_000 })
      .toEqual(['198.51.100.6']);
    expect((await resolve(dns('x.other.test'))).outcome).toBe('refused-name');
  });

  it('survives garbage on port 53', async () => {
    const noise = guest.spawn(['python3', '-c', noiseProgram]);
    await new Promise((ended) => noise.once('exit', ended));
    await sleep(100);
    expect((await resolve(dns('exact.test'))).answer).toEqual(['198.51.100.6']);
    expect((await host.state()).warnings).toEqual([]);
  });
});

/** Connects at the first line, and says at the second whether the connection still carries. */
const talkProgram = `
import socket, sys
sys.stdin.readline()
s = socket.create_connection(('198.51.100.2', 9001), 3)
print('connected', flush=True)
sys.stdin.readline()
s.settimeout(3)
s.sendall(b'x')
print('ok' if s.recv(10) == b'x' else 'lost', flush=True)
sys.stdin.readline()
`;

/** Connects over and over until stdin ends. */
const stormProgram = `
import json, select, socket, sys
connected = failed = 0
while not select.select([sys.stdin], [], [], 0.005)[0]:
    try:
        with socket.create_connection(('198.51.100.2', 80), 2) as s: s.recv(100)
        connected += 1
    except OSError: failed += 1
print(json.dumps({'connected': connected, 'failed': failed}))
`;

/** Broken, cut and random messages over UDP and TCP. */
const noiseProgram = `
import os, socket, struct
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(200): u.sendto(os.urandom(n), ('10.0.2.3', 53))
loop = struct.pack('>HHHHHH', 7, 0x0100, 1, 0, 0, 0) + b'\\xc0\\x0c\\x00\\x01\\x00\\x01'
u.sendto(loop, ('10.0.2.3', 53))
for n in (0, 1, 11, 12, 500):
    t = socket.create_connection(('10.0.2.3', 53), 2)
    t.sendall(struct.pack('>H', n) + os.urandom(n))
    t.close()
`;
