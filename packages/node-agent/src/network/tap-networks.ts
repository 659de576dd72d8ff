/**
 * Networks with root: a namespace, a tap and a pair of links for each sandbox. Opened by `agent.ts`.
 * If this process dies, namespaces in use, the host's table and forwarding stay; the DNS proxy ends, and guests
 * resolve no names until the next start.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Cidr, containsCidr, parseCidr } from '@sandlot/protocol';
import { NetworkError, type NetworkHandle, type Networks, type SandboxNetwork } from './contract.js';
import { DnsProxy } from './dns/dns-proxy.js';
import type { EgressSurroundings } from './policy/egress-plan.js';
import { neverReachable } from './policy/ranges.js';
import { type FoundEgress, freshEgress, readEgress } from './tap/found-egress.js';
import { HostSetup } from './tap/host-setup.js';
import { type InstanceLayout, layOut, type NetworkNames } from './tap/layout.js';
import { NamespacePool } from './tap/namespace-pool.js';
import { Namespaces } from './tap/namespaces.js';
import { defaultRunFolder } from './tap/run-folder.js';
import { claimSubnet, releaseSubnet } from './tap/subnet-claim.js';
import { TapNetwork, type TapNetworkParts } from './tap/tap-network.js';

/** What an instance's networks are made by. */
export interface TapNetworkOptions {
  /** Four hex digits; in every name on the host. */
  instanceId: string;
  /** Remembers the subnet. */
  stateFolder: string;
  /** A /20; default the first free one of 10.77.0.0/16. */
  subnet?: string;
  /** Namespaces kept ready. */
  poolSize: number;
  /** Identity of the DNS proxy; default: root without rights. */
  runDnsAs?: { uid: number; gid: number };
  /** Uids of machines begin here; 131,072 numbers are set aside. Default 2,000,000. */
  firstUid?: number;
  /** Private ranges open to every sandbox that may reach the outside. */
  allowPrivate: readonly string[];
  /** TCP ports of this host open to sandboxes at the service address. The service must listen there or on 0.0.0.0. */
  allowHostPorts: readonly number[];
  /** `ADDRESS` or `IPV4:PORT`; default: the host's resolv.conf. */
  dnsUpstream?: readonly string[];
  /** Interface to the outside; default: those of the default routes. */
  uplink?: string;
  /** Connections that one sandbox may have at once. Default 4,096. */
  maxConnections?: number;
  /** What instances on a host share; default /run/sandlot. */
  runFolder?: string;
  /** Main program of the DNS proxy, for callers that run from a bundle. */
  dnsProxyMain?: string;
}

/** How often the default route is looked at. */
const refreshMs = 30_000;

/** Everything that exists only between `start` and `close`. */
interface Started {
  layout: InstanceLayout;
  host: HostSetup;
  namespaces: Namespaces;
  pool: NamespacePool;
  dns: DnsProxy;
  parts: TapNetworkParts;
  refreshTimer: NodeJS.Timeout;
}

/** Networks with root. Needs iproute2, nftables, util-linux and procps; touches nothing before `start`. Throws {@link NetworkError} for options that make no sense. */
export function openTapNetworks(options: TapNetworkOptions): Networks {
  return new TapNetworks(options);
}

/** See {@link Networks}. */
class TapNetworks implements Networks {
  readonly mode = 'tap';
  private starting: Promise<Started> | undefined;
  private started: Started | undefined;
  private readonly inUse = new Map<number, TapNetwork>();
  private readonly allowPrivate: Cidr[];
  private refreshFailure: string | undefined;

  constructor(private readonly options: TapNetworkOptions) {
    this.allowPrivate = options.allowPrivate.map(parseAllowedPrivate);
    for (const port of options.allowHostPorts) {
      if (!Number.isInteger(port) || port < 1 || port > 65535 || port === 53) {
        throw new NetworkError(
          'setup-failed',
          `host port ${port} cannot be opened: it must be 1 to 65535 and not 53 (DNS)`,
        );
      }
    }
  }

  async start(): Promise<void> {
    this.starting ??= this.setUp();
    try {
      this.started = await this.starting;
    } catch (cause) {
      this.starting = undefined;
      throw cause;
    }
  }

  async acquire(): Promise<SandboxNetwork> {
    const { pool } = this.running();
    return this.register(await pool.take(), freshEgress);
  }

  async adopt(handle: NetworkHandle): Promise<SandboxNetwork | undefined> {
    const { namespaces, pool, layout } = this.running();
    if (handle.kind !== 'tap') return undefined;
    const known = this.inUse.get(handle.index);
    if (known) return known;
    const names = layout.at(handle.index);
    const found = readEgress(await namespaces.readTable(handle.index));
    // Without its rules it is not one that a sandbox ever got: `reap` takes it.
    if (!found) return undefined;
    pool.reserve([handle.index]);
    const network = this.register(names, found);
    await network.restorePolicy();
    return network;
  }

  async reap(): Promise<void> {
    const { namespaces, pool, parts } = this.running();
    // Read before asking who owns them: one that is made meanwhile is not in the list.
    const found = await namespaces.list();
    const owned = pool.owned();
    const lost = found.filter(
      (index) => !this.inUse.has(index) && (!owned.has(index) || this.unclaimed.has(index)),
    );
    await Promise.all(lost.map((index) => rm(parts.policyFile(index), { force: true })));
    await namespaces.remove(lost);
    for (const index of lost) {
      this.unclaimed.delete(index);
      pool.giveBack(index);
    }
  }

  processes(): { pid: number; role: string }[] {
    const pid = this.started?.dns.pid;
    return pid === undefined ? [] : [{ pid, role: 'dns-proxy' }];
  }

  warnings(): string[] {
    if (!this.started) return [];
    const { host, pool, dns } = this.started;
    return [...host.warnings(), pool.warning(), dns.warning(), this.refreshFailure].filter(
      (text) => text !== undefined,
    );
  }

  async close(mode: 'keep' | 'remove'): Promise<void> {
    const started = await this.starting?.catch(() => undefined);
    if (!started) return;
    this.starting = undefined;
    this.started = undefined;
    clearInterval(started.refreshTimer);
    await Promise.all([started.pool.close(), started.dns.close()]);
    if (mode === 'keep') return;
    await started.namespaces.remove(await started.namespaces.list());
    await rm(join(this.options.stateFolder, 'policies'), { recursive: true, force: true });
    await started.host.remove();
    await releaseSubnet(this.runFolder(), started.layout.subnet, started.layout.instanceId);
    this.inUse.clear();
  }

  /** Found at the start and neither adopted nor reaped yet. */
  private readonly unclaimed = new Set<number>();

  private async setUp(): Promise<Started> {
    const { options } = this;
    const runFolder = this.runFolder();
    const claim = { instanceId: options.instanceId, stateFolder: options.stateFolder, runFolder };
    const subnet = await claimSubnet({
      ...claim,
      ...(options.subnet === undefined ? {} : { subnet: options.subnet }),
    });
    const layout = layOut(options.instanceId, subnet, options.firstUid ?? 2_000_000);
    const never = [...neverReachable, subnet];
    const surroundings: EgressSurroundings = {
      serviceAddress: layout.serviceAddress,
      allowHostPorts: options.allowHostPorts,
      allowPrivate: this.allowPrivate,
      never,
    };
    const { allowPrivate } = this;
    const host = new HostSetup(layout, {
      runFolder,
      uplink: options.uplink,
      allowPrivate,
      allowHostPorts: options.allowHostPorts,
    });
    const scratch = join(options.stateFolder, 'making');
    await rm(scratch, { recursive: true, force: true });
    await mkdir(scratch, { recursive: true, mode: 0o700 });
    await mkdir(join(options.stateFolder, 'policies'), { recursive: true, mode: 0o700 });
    const { serviceAddress } = layout;
    const rules = {
      serviceAddress,
      never,
      allowHostPorts: options.allowHostPorts,
      maxConnections: options.maxConnections ?? 4_096,
    };
    const namespaces = new Namespaces(layout, rules, scratch);
    const pool = new NamespacePool(namespaces, options.poolSize);
    const dns = this.makeDnsProxy(layout);
    const parts: TapNetworkParts = {
      surroundings,
      nft: (index, transaction) => namespaces.nft(index, transaction),
      setDnsPolicy: (source, policy) => dns.setPolicy(source, policy),
      policyFile: (index) => join(options.stateFolder, 'policies', `${index}.json`),
      release: (network) => this.release(network),
    };
    const existing = await namespaces.list();
    try {
      await host.apply();
      await dns.start();
    } catch (cause) {
      // Nothing of ours runs that would need it: the host is as before.
      if (existing.length === 0) {
        await host.remove().catch(() => undefined);
        await releaseSubnet(runFolder, subnet, options.instanceId);
      }
      throw cause;
    }
    for (const index of existing) this.unclaimed.add(index);
    pool.reserve(existing);
    pool.fill();
    const refreshTimer = setInterval(() => this.refreshHost(host), refreshMs);
    refreshTimer.unref();
    return { layout, host, namespaces, pool, dns, parts, refreshTimer };
  }

  private makeDnsProxy(layout: InstanceLayout): DnsProxy {
    const { dnsUpstream, runDnsAs, dnsProxyMain } = this.options;
    return new DnsProxy({
      config: {
        address: layout.serviceAddress,
        port: 53,
        upstreams: dnsUpstream ? [...dnsUpstream] : null,
      },
      ...(runDnsAs ? { runAs: runDnsAs } : {}),
      admit: async (source, name, addresses) => {
        const network = [...this.inUse.values()].find((one) => one.nodeAddress === source);
        return network ? network.admit(name, addresses) : false;
      },
      ...(dnsProxyMain === undefined ? {} : { mainPath: dnsProxyMain }),
    });
  }

  private register(names: NetworkNames, found: FoundEgress): TapNetwork {
    const network = new TapNetwork(names, this.running().parts, found);
    this.unclaimed.delete(names.index);
    this.inUse.set(names.index, network);
    return network;
  }

  private async release(network: TapNetwork): Promise<void> {
    const { namespaces, pool, dns, parts } = this.running();
    dns.forget(network.nodeAddress);
    // The file before the namespace: the next one of this index must never be given an old policy.
    await rm(parts.policyFile(network.names.index), { force: true });
    await namespaces.remove([network.names.index]);
    this.inUse.delete(network.names.index);
    pool.giveBack(network.names.index);
  }

  private refreshHost(host: HostSetup): void {
    host.refresh().then(
      () => {
        this.refreshFailure = undefined;
      },
      (cause: Error) => {
        this.refreshFailure = `The host's network rules could not be renewed: ${cause.message}`;
      },
    );
  }

  private running(): Started {
    if (!this.started)
      throw new NetworkError('setup-failed', 'the networks are not started; call start first');
    return this.started;
  }

  private runFolder(): string {
    return this.options.runFolder ?? defaultRunFolder;
  }
}

function parseAllowedPrivate(text: string): Cidr {
  const range = parseCidr(text);
  if (!range) throw new NetworkError('setup-failed', `'${text}' is not an IPv4 CIDR that could be opened`);
  const closed = neverReachable.find((outer) => containsCidr(outer, range));
  if (closed)
    throw new NetworkError(
      'setup-failed',
      `'${text}' can never be opened to sandboxes: loopback, link-local, multicast or other sandboxes`,
    );
  return range;
}
