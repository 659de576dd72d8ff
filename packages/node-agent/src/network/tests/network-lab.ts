/**
 * The world of the network tests: a namespace that plays the host, one that plays everything outside, and
 * guests without QEMU on the sandboxes' taps. Nothing touches the machine's own network, and `close` leaves
 * nothing behind.
 */
import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { EgressPolicy } from '@sandlot/protocol';
import { build } from 'esbuild';
import type { NetworkProbe, NetworkProbeResult } from '../network-probes.js';
import { networkProbeScript } from '../network-probes.js';
import type { TapNetworkOptions } from '../tap-networks.js';
import type { HostReply, HostRequest } from './host-main.js';

/** A network as the test sees it. */
export interface LabNetwork {
  handle: { kind: string; index: number };
  machine: { netnsPath: string; tapName: string };
  runAs: { uid: number; gid: number };
  nodeAddress: string;
}

type RequestBody = HostRequest extends infer R ? (R extends { id: number } ? Omit<R, 'id'> : never) : never;

/** Addresses of the lab. */
export const labAddresses = {
  hostUplink: '203.0.113.1',
  worldUplink: '203.0.113.254',
  world: [
    '198.51.100.1',
    '198.51.100.2',
    '198.51.100.3',
    '198.51.100.4',
    '198.51.100.5',
    '198.51.100.6',
    '198.51.100.7',
    '198.51.100.8',
  ],
  worldDns: '198.51.100.53',
  privateHosts: ['10.9.9.9', '172.16.5.5', '192.168.7.7', '100.64.1.1'],
} as const;

/** Two namespaces, the world's servers, and a folder. */
export class NetworkLab {
  readonly folder = mkdtempSync(join(tmpdir(), 'sandlot-network-'));
  readonly hostNamespace: string;
  readonly worldLog: string[] = [];
  private readonly worldNamespace: string;
  private readonly children = new Set<ChildProcessWithoutNullStreams>();
  private readonly guestNamespaces: string[] = [];

  private constructor(private readonly tag: string) {
    this.hostNamespace = `slt${tag}-host`;
    this.worldNamespace = `slt${tag}-world`;
  }

  /** Makes it. `uplink: false`: the host has no way out. */
  static async open(options: { uplink?: boolean } = {}): Promise<NetworkLab> {
    const lab = new NetworkLab(`${process.pid}${Math.floor(Math.random() * 1000)}`);
    try {
      await lab.setUp(options.uplink ?? true);
    } catch (cause) {
      await lab.close();
      throw cause;
    }
    return lab;
  }

  /** Starts a program in the host's namespace. */
  spawnOnHost(argv: string[]): ChildProcessWithoutNullStreams {
    return this.spawnIn(this.hostNamespace, argv);
  }

  /** Runs a short program in the host's namespace. */
  runOnHost(argv: string[]): string {
    return run('nsenter', `--net=/run/netns/${this.hostNamespace}`, ...argv);
  }

  /** A node agent's networks, in a process of its own on the lab's host. */
  openHost(options: Partial<TapNetworkOptions> & { instanceId: string }): LabHost {
    const child = this.spawnOnHost([process.execPath, join(this.folder, 'host-main.mjs')]);
    return new LabHost(child, {
      stateFolder: join(this.folder, `state-${options.instanceId}`),
      runFolder: join(this.folder, 'run'),
      dnsProxyMain: join(this.folder, 'dns-proxy-main.mjs'),
      poolSize: 1,
      allowPrivate: [],
      allowHostPorts: [],
      dnsUpstream: [labAddresses.worldDns],
      ...options,
    });
  }

  /** A guest on the tap of a network. */
  async startGuest(network: LabNetwork): Promise<LabGuest> {
    const namespace = `slt${this.tag}-g${this.guestNamespaces.length}`;
    run('ip', 'netns', 'add', namespace);
    this.guestNamespaces.push(namespace);
    const child = this.spawnIn(this.hostNamespace, [
      'python3',
      fileURLToPath(new URL('./guest.py', import.meta.url)),
      network.machine.netnsPath,
      `/run/netns/${namespace}`,
    ]);
    await firstLine(child);
    const inside = (...argv: string[]): void => void run('ip', '-n', namespace, ...argv);
    run('nsenter', `--net=/run/netns/${namespace}`, 'sysctl', '-qw', 'net.ipv6.conf.all.disable_ipv6=1');
    inside('link', 'set', 'eth0', 'address', '52:54:00:12:34:56');
    inside('addr', 'add', '10.0.2.15/24', 'dev', 'eth0');
    inside('link', 'set', 'eth0', 'up');
    inside('route', 'add', 'default', 'via', '10.0.2.2');
    inside('link', 'set', 'lo', 'up');
    return new LabGuest(namespace, child, (argv) => this.spawnIn(namespace, argv));
  }

  /** Removes everything. */
  async close(): Promise<void> {
    await Promise.all([...this.children].map(end));
    for (const namespace of [...this.guestNamespaces, this.hostNamespace, this.worldNamespace]) {
      try {
        run('ip', 'netns', 'del', namespace);
      } catch {
        // Not made: `open` failed before it.
      }
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  private async setUp(uplink: boolean): Promise<void> {
    const here = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
    // The DNS proxy is read from there by its own user.
    chmodSync(this.folder, 0o755);
    await build({
      entryPoints: [here('./host-main.ts'), here('./world-main.ts'), here('../dns/dns-proxy-main.ts')],
      outdir: this.folder,
      outExtension: { '.js': '.mjs' },
      entryNames: '[name]',
      bundle: true,
      platform: 'node',
      format: 'esm',
      banner: {
        js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);",
      },
      logLevel: 'error',
    });
    const { hostNamespace: host, worldNamespace: world } = this;
    run('ip', 'netns', 'add', host);
    // A new namespace takes forwarding over from the machine, where an instance may have turned it on.
    run('ip', 'netns', 'exec', host, 'sysctl', '-qw', 'net.ipv4.ip_forward=0');
    run('ip', 'netns', 'add', world);
    run('ip', 'link', 'add', 'wan0', 'netns', host, 'type', 'veth', 'peer', 'name', 'lan0', 'netns', world);
    const on = (namespace: string, ...lines: string[]): void => {
      for (const line of lines) run('ip', '-n', namespace, ...line.split(' '));
    };
    on(host, 'link set lo up', `addr add ${labAddresses.hostUplink}/24 dev wan0`, 'link set wan0 up');
    on(world, 'link set lo up', `addr add ${labAddresses.worldUplink}/24 dev lan0`, 'link set lan0 up');
    const addresses = [
      ...labAddresses.world,
      labAddresses.worldDns,
      ...labAddresses.privateHosts,
      '169.254.169.254',
    ];
    on(world, ...addresses.map((address) => `addr add ${address}/32 dev lo`));
    // Proof that nothing forged gets out: the world could answer every source.
    on(world, `route add default via ${labAddresses.hostUplink}`);
    if (uplink) on(host, `route add default via ${labAddresses.worldUplink}`);
    const server = this.spawnIn(world, [process.execPath, join(this.folder, 'world-main.mjs'), ...addresses]);
    const lines = createInterface({ input: server.stdout });
    await new Promise<void>((resolve, reject) => {
      server.once('exit', () => reject(new Error('the world ended')));
      lines.on('line', (line) => (line === 'ready' ? resolve() : this.worldLog.push(line)));
    });
  }

  private spawnIn(namespace: string, argv: string[]): ChildProcessWithoutNullStreams {
    const child = spawn('nsenter', [`--net=/run/netns/${namespace}`, ...argv], { stdio: 'pipe' });
    child.stdin.on('error', () => {});
    child.stderr.pipe(process.stderr);
    this.children.add(child);
    child.once('exit', () => this.children.delete(child));
    return child;
  }
}

/** The test's end of `host-main.ts`. */
export class LabHost {
  /** Milliseconds that each call took, by its kind. */
  readonly times: { op: string; ms: number }[] = [];
  private lastId = 0;
  private ended = false;
  private readonly waiting = new Map<number, (reply: HostReply) => void>();

  constructor(
    private readonly child: ChildProcessWithoutNullStreams,
    private readonly options: TapNetworkOptions,
  ) {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const reply = JSON.parse(line) as HostReply;
      this.waiting.get(reply.id)?.(reply);
      this.waiting.delete(reply.id);
    });
    child.once('exit', () => {
      this.ended = true;
      for (const settle of this.waiting.values()) settle({ id: 0, ms: 0, error: 'the host program ended' });
    });
  }

  start(): Promise<void> {
    return this.call({ op: 'open', options: this.options });
  }

  acquire(): Promise<LabNetwork> {
    return this.call({ op: 'acquire' });
  }

  adopt(index: number): Promise<LabNetwork | undefined> {
    return this.call({ op: 'adopt', index });
  }

  release(network: LabNetwork): Promise<void> {
    return this.call({ op: 'release', index: network.handle.index });
  }

  apply(network: LabNetwork, lists: Partial<EgressPolicy>): Promise<void> {
    const policy: EgressPolicy = { generation: 0, allowlist: null, denylist: null, ...lists };
    return this.call({ op: 'apply', index: network.handle.index, policy });
  }

  reap(): Promise<void> {
    return this.call({ op: 'reap' });
  }

  state(): Promise<{ processes: { pid: number; role: string }[]; warnings: string[] }> {
    return this.call({ op: 'state' });
  }

  /** Closes the networks and ends the process. */
  async close(mode: 'keep' | 'remove'): Promise<void> {
    await this.call({ op: 'close', mode });
    await end(this.child);
  }

  /** As a crash. */
  async kill(): Promise<void> {
    await end(this.child);
  }

  private async call<T>(body: RequestBody): Promise<T> {
    if (this.ended) throw new Error('the host program has ended');
    this.lastId += 1;
    const id = this.lastId;
    const reply = await new Promise<HostReply>((resolve) => {
      this.waiting.set(id, resolve);
      this.child.stdin.write(`${JSON.stringify({ id, ...body })}\n`);
    });
    this.times.push({ op: body.op, ms: reply.ms });
    if ('error' in reply) throw Object.assign(new Error(reply.error), { code: reply.code });
    return reply.result as T;
  }
}

/** A guest without QEMU. */
export class LabGuest {
  constructor(
    readonly namespace: string,
    private readonly bridge: ChildProcessWithoutNullStreams,
    private readonly spawnInside: (argv: string[]) => ChildProcessWithoutNullStreams,
  ) {}

  /** Runs probes; by name. */
  async probe(probes: NetworkProbe[]): Promise<Map<string, NetworkProbeResult>> {
    const child = this.spawnInside(['python3', '-c', networkProbeScript]);
    child.stdin.end(
      JSON.stringify(
        probes.map((probe) => (probe.kind === 'dns' ? { server: '10.0.2.3', ...probe } : probe)),
      ),
    );
    let out = '';
    for await (const part of child.stdout) out += part;
    return new Map((JSON.parse(out) as NetworkProbeResult[]).map((result) => [result.name, result]));
  }

  /** Starts a program in it. */
  spawn(argv: string[]): ChildProcessWithoutNullStreams {
    return this.spawnInside(argv);
  }

  /** Sends frames as a guest that forges them would. */
  async sendFrames(frames: Buffer[]): Promise<void> {
    const sent = firstLine(this.bridge);
    this.bridge.stdin.write(frames.map((frame) => `${frame.toString('hex')}\n`).join(''));
    await sent;
  }

  /** Detaches from the tap, as QEMU's end does. */
  async stop(): Promise<void> {
    await end(this.bridge);
  }
}

/** Names of namespaces of an instance, and of the lab, that are still there. */
export function listLeftovers(instanceId: string): string[] {
  const names = readdirSync('/run/netns');
  return names.filter((name) => name.startsWith(`sl${instanceId}`) || name.startsWith(`slt${process.pid}`));
}

/** Runs a tool and gives its output. */
export function run(command: string, ...args: string[]): string {
  return execFileSync(command, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 10_000,
  });
}

function firstLine(child: ChildProcessWithoutNullStreams): Promise<string> {
  return new Promise((resolve, reject) => {
    child.stdout.once('data', (part: Buffer) => resolve(part.toString()));
    child.once('exit', () => reject(new Error('the program ended without a word')));
  });
}

async function end(child: ChildProcessWithoutNullStreams): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}
