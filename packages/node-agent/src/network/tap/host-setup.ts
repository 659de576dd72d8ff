/**
 * The host's side of one instance: service address, forwarding, nft table. Owned by `../tap-networks.ts`. What
 * it changes it puts back in `remove`; after a crash `apply` finds it and goes on.
 */
import type { Cidr } from '@sandlot/protocol';
import { releaseForwarding, requireForwarding } from './forwarding.js';
import { writeHostRules } from './host-rules.js';
import type { InstanceLayout } from './layout.js';
import { runTool } from './run-tool.js';
import { releaseTunDevice, requireTunDevice } from './tun-device.js';

/** What the set-up depends on. */
export interface HostSetupOptions {
  runFolder: string;
  /** Undefined: the interfaces of the default routes, looked up at each `apply`. */
  uplink: string | undefined;
  allowPrivate: readonly Cidr[];
  allowHostPorts: readonly number[];
}

interface Route {
  dst?: string;
  dev?: string;
  nexthops?: { dev?: string }[];
}

interface NftChain {
  family: string;
  table: string;
  name: string;
  hook?: string;
  policy?: string;
}

/** Set-up of the host for one instance. */
export class HostSetup {
  private applied: string | undefined;
  private warningsFound: string[] = [];

  constructor(
    private readonly layout: InstanceLayout,
    private readonly options: HostSetupOptions,
  ) {}

  /** Puts everything in place, or renews it after the uplink changed. Idempotent. */
  async apply(): Promise<void> {
    const { serviceAddress } = this.layout;
    await runTool(['ip', 'link', 'set', 'lo', 'up']);
    await runTool(['ip', 'addr', 'replace', `${serviceAddress}/32`, 'dev', 'lo']);
    // The table first: forwarding without it would let sandboxes of a crashed instance meet.
    await this.refresh();
    await requireForwarding(this.options.runFolder, this.layout.instanceId);
    await requireTunDevice(this.options.runFolder, this.layout.instanceId);
    this.warningsFound = [...this.warningsFound, ...(await findForeignDrops(this.layout.hostTable))];
  }

  /** Loads the table anew if the host's default route has moved to another interface. */
  async refresh(): Promise<void> {
    const uplinks = this.options.uplink === undefined ? await readUplinks() : [this.options.uplink];
    const rules = writeHostRules(this.layout, { ...this.options, uplinks });
    if (rules === this.applied) return;
    await runTool(['nft', '-f', '-'], { input: rules });
    this.applied = rules;
    this.warningsFound =
      uplinks.length > 0 ? [] : ['This host has no default route: sandboxes reach nothing outside it.'];
  }

  warnings(): string[] {
    return [...this.warningsFound];
  }

  /** Takes all of it away. Idempotent. */
  async remove(): Promise<void> {
    const { hostTable, serviceAddress } = this.layout;
    await releaseTunDevice(this.options.runFolder, this.layout.instanceId);
    await releaseForwarding(this.options.runFolder, this.layout.instanceId);
    // "add" before "delete": a table that is not there is no error then.
    await runTool(['nft', '-f', '-'], { input: `table inet ${hostTable}\ndelete table inet ${hostTable}\n` });
    await runTool(['ip', 'addr', 'del', `${serviceAddress}/32`, 'dev', 'lo'], { mayFail: true });
    this.applied = undefined;
  }
}

/** Interfaces of the IPv4 default routes. */
async function readUplinks(): Promise<string[]> {
  const routes = JSON.parse(
    (await runTool(['ip', '-4', '-j', 'route', 'show', 'default'])) || '[]',
  ) as Route[];
  const names = routes.flatMap((route) => [route.dev, ...(route.nexthops ?? []).map((hop) => hop.dev)]);
  return [...new Set(names.filter((name) => name !== undefined))].sort();
}

/** Another firewall that drops forwarded packets wins over our "accept": nft asks every table. */
async function findForeignDrops(ownTable: string): Promise<string[]> {
  const listing = JSON.parse(await runTool(['nft', '-j', 'list', 'chains'])) as {
    nftables: { chain?: NftChain }[];
  };
  return listing.nftables
    .flatMap(({ chain }) => (chain ? [chain] : []))
    .filter((chain) => chain.hook === 'forward' && chain.policy === 'drop' && chain.table !== ownTable)
    .filter((chain) => ['inet', 'ip'].includes(chain.family))
    .map(
      ({ family, table, name }) =>
        `Another firewall on this host drops forwarded packets (nft chain ${family} ${table} ${name}): unless it lets links "sl*" pass, sandboxes reach nothing.`,
    );
}
