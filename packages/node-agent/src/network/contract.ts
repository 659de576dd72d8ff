/**
 * The contract of networks: what the rest of the node agent sees of them, whichever way they are made.
 * Inside every guest the addresses are the same. Implemented in `tap/` (with root) and `user-networks.ts` (without, or without /dev/net/tun).
 */
import type { EgressPolicy } from '@sandlot/protocol';
import type { MachineNetwork, RunAs } from '@sandlot/vmm';

/** Addresses inside every guest, with or without root; those of QEMU's user network. */
export const guestAddresses = {
  address: '10.0.2.15',
  prefixLength: 24,
  gateway: '10.0.2.2',
  resolver: '10.0.2.3',
  guestMac: '52:54:00:12:34:56',
  gatewayMac: '52:55:0a:00:02:02',
} as const;

/** The network of one sandbox. Plain data in `handle`, stored in the sandbox's record. */
export interface SandboxNetwork {
  readonly handle: NetworkHandle;
  /**
   * For the VMM driver. On a user network its `restricted` is settled by the policy in force at the first read
   * (QEMU cannot change it later), so apply the policy first.
   */
  readonly machine: MachineNetwork;
  /** The identity of this sandbox's VMM process, no other's; the tap, if there is one, belongs to it. Undefined where the node agent is not root: the process is then its own user's. */
  readonly runAs: RunAs | undefined;
  /** Address on the node, e.g. 10.77.3.4, where the node agent reaches ports of the guest; undefined on a user network. */
  readonly nodeAddress: string | undefined;
  /** Puts a policy in force for new connections; resolves when it is. Nothing is reachable before the first call. Throws {@link NetworkError} (`unsupported` on a user network for anything but all or none, and for a change after the start; `invalid-policy` for a malformed list, the old policy then stays). */
  applyPolicy(policy: EgressPolicy): Promise<void>;
  /** Lets through what was resolved in another network and may be reached by the policy in force here, as long as there; a copy of a guest remembers addresses. */
  takeNamesOf(other: SandboxNetwork): Promise<void>;
  /** Removes everything. Idempotent. The VMM process must be gone. */
  release(): Promise<void>;
}

/** Enough to find it again after a restart. */
export interface NetworkHandle {
  kind: 'tap' | 'user';
  /** Index in the instance; names, uid and addresses follow from it. */
  index: number;
}

/** All networks of one instance on this host. */
export interface Networks {
  readonly mode: 'tap' | 'user';
  /** Host set-up: forwarding, the instance's nft table, the service address, the DNS proxy. Idempotent. */
  start(): Promise<void>;
  /** From the pool, or made now. */
  acquire(): Promise<SandboxNetwork>;
  /** A network that a sandbox from before our restart still uses; undefined if it is gone. */
  adopt(handle: NetworkHandle): Promise<SandboxNetwork | undefined>;
  /** Removes every namespace and link of this instance that is neither in use nor in the pool. Called after all adoptions. */
  reap(): Promise<void>;
  /** Our own processes: the DNS proxy. */
  processes(): { pid: number; role: string }[];
  warnings(): string[];
  /** Ends our processes and empties the pool; namespaces in use stay (`keep`), or everything of this instance goes and host settings are put back (`remove`). */
  close(mode: 'keep' | 'remove'): Promise<void>;
}

/** Something in the network's set-up failed or is not possible here. */
export class NetworkError extends Error {
  override name = 'NetworkError';
  constructor(
    readonly code: 'unsupported' | 'invalid-policy' | 'setup-failed' | 'exhausted',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
