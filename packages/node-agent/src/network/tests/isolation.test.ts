/**
 * What a sandbox must never reach, on a real kernel with a guest that is emulated without QEMU: other sandboxes,
 * the node, metadata services, private space; and what forged frames do.
 */
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listNetworkProbes } from '../network-probes.js';
import { arpFrame, ipv4Frame, otherFrame } from './frames.js';
import {
  type LabGuest,
  type LabHost,
  type LabNetwork,
  labAddresses,
  listLeftovers,
  NetworkLab,
} from './network-lab.js';

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.warn('network tests skipped: they make namespaces, which needs root');

const hostPorts = [7001, 7002, 9000];

describe.skipIf(!isRoot)('isolation of sandboxes', { timeout: 30_000 }, () => {
  let lab: NetworkLab;
  let host: LabHost;
  let own: LabNetwork;
  let other: LabNetwork;
  let guest: LabGuest;
  let otherGuest: LabGuest;
  const hits: string[] = [];

  /** Starts services and collects what reaches them. */
  async function listen(child: ChildProcessWithoutNullStreams): Promise<void> {
    await new Promise<void>((resolve) => {
      child.stdout.on('data', (part: Buffer) => {
        if (part.toString().includes('ready')) resolve();
        hits.push(
          ...part
            .toString()
            .split('\n')
            .filter((line) => line.startsWith('hit')),
        );
      });
    });
  }

  beforeAll(async () => {
    lab = await NetworkLab.open();
    host = lab.openHost({ instanceId: 'a101', poolSize: 0 });
    await host.start();
    [own, other] = await Promise.all([host.acquire(), host.acquire()]);
    [guest, otherGuest] = [await lab.startGuest(own), await lab.startGuest(other)];
    await Promise.all([host.apply(own, { denylist: [] }), host.apply(other, { denylist: [] })]);
    const program = fileURLToPath(new URL('./listeners.py', import.meta.url));
    await listen(lab.spawnOnHost(['python3', program, '127.0.0.1:7001', '0.0.0.0:7002', '0.0.0.0:9000']));
    await listen(otherGuest.spawn(['python3', program, '0.0.0.0:9000', '0.0.0.0:7001']));
  }, 60_000);

  afterAll(async () => {
    await host?.close('remove');
    await lab?.close();
    expect(listLeftovers('a101')).toEqual([]);
  });

  it('reaches no service of the node, of another sandbox, of private space or of the link', async () => {
    const probes = listNetworkProbes({
      node: [labAddresses.hostUplink],
      otherSandboxes: [other.nodeAddress],
      own: [own.nodeAddress, serviceAddressOf(own)],
      privateHosts: [...labAddresses.privateHosts],
      ports: hostPorts,
    });
    const seen = lab.worldLog.length;
    const results = await guest.probe([
      ...probes,
      { name: 'world', kind: 'tcp', host: '198.51.100.1', port: 9000 },
    ]);
    expect(results.get('world')?.reached).toBe(true);
    results.delete('world');
    expect([...results.values()].filter((result) => result.reached)).toEqual([]);
    expect(hits).toEqual([]);
    expect(lab.worldLog.slice(seen).filter((line) => !line.startsWith('tcp 198.51.100.1 9000'))).toEqual([]);
  });

  it('is told at once that it may not, and does not wait for a timeout', async () => {
    const results = await guest.probe(
      [labAddresses.hostUplink, other.nodeAddress, '192.168.7.7', '169.254.169.254'].map((address) => ({
        name: address,
        kind: 'tcp' as const,
        host: address,
        port: 9000,
      })),
    );
    for (const result of results.values()) {
      expect(['prohibited', 'refused']).toContain(result.outcome);
      expect(result.ms).toBeLessThan(500);
    }
  });

  it('lets the node reach a port of the guest, and another sandbox not', async () => {
    const answer = lab.runOnHost(['python3', '-c', connectProgram, other.nodeAddress, '9000']);
    expect(answer.trim()).toBe('secret');
    await expect.poll(() => hits).toEqual([`hit tcp 0.0.0.0 9000 ${serviceAddressOf(own)}`]);
    hits.length = 0;
  });

  it('lets nothing forged out of the namespace', async () => {
    const link = `sla101v${own.handle.index}`;
    const sniffer = lab.spawnOnHost(['python3', fileURLToPath(new URL('./sniff.py', import.meta.url)), link]);
    const frames: string[] = [];
    await new Promise<void>((resolve) => {
      sniffer.stdout.on('data', (part: Buffer) => {
        if (part.toString().startsWith('ready')) resolve();
        frames.push(
          ...part
            .toString()
            .split('\n')
            .filter((line) => line.startsWith('5') || /^[0-9a-f]{28,}$/.test(line)),
        );
      });
    });
    await guest.sendFrames([
      ipv4Frame({ source: '10.0.2.16' }),
      ipv4Frame({ source: '8.8.8.8' }),
      ipv4Frame({ source: '127.0.0.1' }),
      ipv4Frame({ source: other.nodeAddress }),
      ipv4Frame({ sourceMac: '52:54:00:12:34:57' }),
      ipv4Frame({ target: '127.0.0.1', port: 7001 }),
      ipv4Frame({ target: '224.0.0.1' }),
      ipv4Frame({ target: '255.255.255.255', targetMac: 'ff:ff:ff:ff:ff:ff', port: 67 }),
      ipv4Frame({ protocol: 47 }),
      ipv4Frame({ target: '169.254.169.254', port: 80 }),
      arpFrame(guestGateway, '52:54:00:12:34:56'),
      arpFrame('10.0.2.9', '52:54:00:12:34:99', { sourceMac: '52:54:00:12:34:99' }),
      otherFrame(0x86dd),
      otherFrame(0x8100),
      otherFrame(0x88cc),
      // The only one that is allowed: shows that the sniffer sees what leaves.
      ipv4Frame({ target: '198.51.100.8', port: 9000 }),
    ]);
    await sleep(500);
    sniffer.kill();
    const targets = frames
      .filter((frame) => frame.slice(24, 28) === '0800' && frame.slice(46, 48) === '11')
      .map((frame) => frame.slice(60, 68));
    // Every UDP packet that left: the allowed one, and no second. (The guest's kernel answers the world's answer by ICMP.)
    expect(targets).toEqual([Buffer.from([198, 51, 100, 8]).toString('hex')]);
    expect(frames.filter((frame) => !['0800', '0806'].includes(frame.slice(24, 28)))).toEqual([]);
    expect(hits).toEqual([]);
  });

  it('recovers after forged frames', async () => {
    const results = await guest.probe([{ name: 'world', kind: 'tcp', host: '198.51.100.3', port: 80 }]);
    expect(results.get('world')?.answer).toEqual(['world 198.51.100.3 80']);
  });
});

const guestGateway = '10.0.2.2';

const connectProgram = `
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).recv(100).decode())
`;

function serviceAddressOf(network: LabNetwork): string {
  const [a, b, c] = network.nodeAddress.split('.').map(Number);
  return `${a}.${b}.${(c! & 0xf0) + 15}.254`;
}
