/**
 * Networks without root, or without /dev/net/tun: QEMU's own user-mode network, inside each VMM process. Nothing on the host is made or
 * changed. It maps the guest's gateway to this host's loopback, so it is off unless the operator asks for it.
 * Opened by `agent.ts`.
 */
import type { EgressPolicy } from '@sandlot/protocol';
import type { MachineNetwork, RunAs } from '@sandlot/vmm';
import { NetworkError, type NetworkHandle, type Networks, type SandboxNetwork } from './contract.js';
import { parseEgressPolicy } from './policy/egress-policy.js';

/** What keeps a node from having taps: it decides what its warnings say, and what to do about it. */
export type NoTapsReason = 'not-root' | 'no-tun' | 'fake-machines';

/** How user networks behave. */
export interface UserNetworkOptions {
  /** Why there are no taps (`not-root`). */
  because?: NoTapsReason;
  /** Policy "all" gives network access, to this host's loopback too. Without it "all" is carried out as "none". */
  rootlessNetwork?: boolean;
  /** As root: each VMM process gets an identity of its own, from this uid up; 4,096 of them belong to this instance. */
  firstUid?: number;
}

const uidCount = 4_096;

const reasons: Readonly<Record<Exclude<NoTapsReason, 'fake-machines'>, { what: string; instead: string }>> = {
  'not-root': { what: 'The node agent is not root', instead: 'run as root where /dev/net/tun is' },
  'no-tun': {
    what: 'There is no /dev/net/tun',
    instead: 'load it (modprobe tun) and run `sandlot up --restart`',
  },
};

/** QEMU's user network for every sandbox. */
export function openUserNetworks(options: UserNetworkOptions = {}): Networks {
  return new UserNetworks(options);
}

/** See {@link Networks}. */
class UserNetworks implements Networks {
  readonly mode = 'user';

  private readonly usedIndexes = new Set<number>();

  constructor(private readonly options: UserNetworkOptions) {}

  async start(): Promise<void> {}

  async acquire(): Promise<SandboxNetwork> {
    let index = 0;
    while (this.usedIndexes.has(index)) index++;
    if (index >= uidCount)
      throw new NetworkError('exhausted', `${uidCount} sandboxes run on this node already`);
    return this.open(index, false);
  }

  async adopt(handle: NetworkHandle): Promise<SandboxNetwork | undefined> {
    return handle.kind === 'user' ? this.open(handle.index, true) : undefined;
  }

  private open(index: number, adopted: boolean): UserNetwork {
    const { firstUid, rootlessNetwork = false } = this.options;
    this.usedIndexes.add(index);
    const uid = firstUid === undefined ? undefined : firstUid + index;
    const runAs = uid === undefined ? undefined : { uid, gid: uid };
    return new UserNetwork(index, runAs, rootlessNetwork, adopted, () => this.usedIndexes.delete(index));
  }

  async reap(): Promise<void> {}

  processes(): { pid: number; role: string }[] {
    return [];
  }

  warnings(): string[] {
    const { because = 'not-root', rootlessNetwork } = this.options;
    if (because === 'fake-machines')
      return [
        'The machines of the fake driver are processes of this host: no policy keeps them from its network.',
      ];
    const { what, instead } = reasons[because];
    return [
      rootlessNetwork
        ? `${what}, so sandboxes use QEMU's user network: they reach services on this host's loopback and in its private network, and no list of hosts can be enforced.`
        : `${what}, so sandboxes have no network, whatever their policy says: start with --rootless-network to turn it on (they then reach this host's loopback), or ${instead}.`,
    ];
  }

  async close(): Promise<void> {}
}

/**
 * Open for a policy until `machine` is read, which is when QEMU gets its arguments; from then on only the
 * policy that is in force is accepted.
 */
class UserNetwork implements SandboxNetwork {
  readonly handle: NetworkHandle;
  readonly nodeAddress = undefined;
  /** Undefined in an adopted one: the first policy is taken for the one that the machine was started with. */
  private mode: 'all' | 'none' | undefined;
  private settled: boolean;
  private isReleased = false;

  constructor(
    index: number,
    readonly runAs: RunAs | undefined,
    private readonly rootlessNetwork: boolean,
    adopted: boolean,
    private readonly onRelease: () => void,
  ) {
    this.handle = { kind: 'user', index };
    this.settled = adopted;
    this.mode = adopted ? undefined : 'none';
  }

  get machine(): MachineNetwork {
    this.settled = true;
    return { kind: 'user', restricted: this.mode !== 'all' || !this.rootlessNetwork };
  }

  async applyPolicy(policy: EgressPolicy): Promise<void> {
    const { mode } = parseEgressPolicy(policy);
    if (mode !== 'all' && mode !== 'none') {
      throw new NetworkError(
        'unsupported',
        'lists of hosts need a node that runs as root and has /dev/net/tun; without, only "everything" and "nothing" are possible',
      );
    }
    if (this.settled && this.mode !== undefined && this.mode !== mode) {
      throw new NetworkError(
        'unsupported',
        'on a node without root or /dev/net/tun the network policy of a sandbox cannot change after its start; make a new sandbox',
      );
    }
    this.mode = mode;
  }

  async takeNamesOf(): Promise<void> {}

  async release(): Promise<void> {
    // Only once: its number may be another's by now.
    if (this.isReleased) return;
    this.isReleased = true;
    this.onRelease();
  }
}
