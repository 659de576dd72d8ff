/**
 * Which addresses a sandbox's names have in its sets, and until when: so that a renewed answer costs no call
 * of nft, and a change of policy keeps the addresses of names that stay. Owned by `tap-network.ts`.
 */
import type { ResolvedAddress } from '../dns/dns-messages.js';

/** An address of a name with seconds left. */
export interface AdmittedAddress {
  name: string;
  address: string;
  timeout: number;
}

/** Programs keep addresses longer than records live: each stays at least this long, and this much longer. */
const minTtlSeconds = 30;
const graceSeconds = 30;
/** Beyond the grace, so that most answers within a record's life find it still there. */
const headroomSeconds = 30;
const maxTtlSeconds = 24 * 3600;

/** Names and addresses of one sandbox; bounded by the size of its sets. */
export class AdmittedNames {
  /** name, address -> end in ms of the monotonic clock. */
  private readonly ends = new Map<string, Map<string, number>>();

  constructor(
    known: readonly AdmittedAddress[] = [],
    private readonly now: () => number = () => performance.now(),
  ) {
    for (const { name, address, timeout } of known) this.set(name, address, timeout);
  }

  /** What must be added or renewed, with the timeout to give it. */
  select(name: string, addresses: readonly ResolvedAddress[]): { address: string; timeout: number }[] {
    const known = this.ends.get(name);
    return addresses.flatMap(({ address, ttl }) => {
      const needed = Math.min(Math.max(ttl, minTtlSeconds), maxTtlSeconds) + graceSeconds;
      const left = ((known?.get(address) ?? Number.NEGATIVE_INFINITY) - this.now()) / 1000;
      return left >= needed ? [] : [{ address, timeout: needed + headroomSeconds }];
    });
  }

  /** These are in the sets now. */
  note(name: string, addresses: readonly { address: string; timeout: number }[]): void {
    this.dropEnded();
    for (const { address, timeout } of addresses) this.set(name, address, timeout);
  }

  /** Everything that still has a second or more. */
  list(): AdmittedAddress[] {
    const now = this.now();
    return [...this.ends].flatMap(([name, addresses]) =>
      [...addresses]
        .map(([address, end]) => ({ name, address, timeout: Math.floor((end - now) / 1000) }))
        .filter(({ timeout }) => timeout >= 1),
    );
  }

  /** Forgets the names that are not to be kept. */
  retain(keep: (name: string) => boolean): void {
    for (const name of this.ends.keys()) if (!keep(name)) this.ends.delete(name);
  }

  private set(name: string, address: string, timeout: number): void {
    const addresses = this.ends.get(name) ?? new Map<string, number>();
    addresses.set(address, this.now() + timeout * 1000);
    this.ends.set(name, addresses);
  }

  private dropEnded(): void {
    const now = this.now();
    for (const [name, addresses] of this.ends) {
      for (const [address, end] of addresses) if (end <= now) addresses.delete(address);
      if (addresses.size === 0) this.ends.delete(name);
    }
  }
}
