/**
 * Namespaces made ahead, with policy "none", so that a start waits for none of it. Each is taken once. Owned
 * by `../tap-networks.ts`.
 */
import { NetworkError } from '../contract.js';
import { maxIndex, type NetworkNames } from './layout.js';
import type { Namespaces } from './namespaces.js';

/** At once, in all: more only makes each slower (the kernel's rtnl lock). */
const maxParallel = 4;
const firstRetryMs = 500;
const lastRetryMs = 30_000;

/**
 * Invariants: an index is in at most one of `taken`, `ready`, `making`; none of them is ever handed out twice
 * while it exists. Indices go round, so that a freed address is not used again at once (the host's connection
 * table may remember it).
 */
export class NamespacePool {
  private readonly taken = new Set<number>();
  private readonly ready: NetworkNames[] = [];
  private readonly making = new Map<number, Promise<NetworkNames>>();
  private readonly queue: (() => void)[] = [];
  private filling = false;
  private closed = false;
  private last = 0;
  private retryMs = firstRetryMs;
  private retryTimer: NodeJS.Timeout | undefined;
  private failure: string | undefined;

  constructor(
    private readonly namespaces: Namespaces,
    private readonly size: number,
  ) {}

  /** These exist from before: not to be made, until they are given back. */
  reserve(indices: readonly number[]): void {
    for (const index of indices) this.taken.add(index);
  }

  /** Indices that are ours to keep, in any of the ways. */
  owned(): Set<number> {
    return new Set([...this.taken, ...this.ready.map(({ index }) => index), ...this.making.keys()]);
  }

  readyCount(): number {
    return this.ready.length;
  }

  /** One for a sandbox. */
  async take(): Promise<NetworkNames> {
    const names = this.ready.shift() ?? (await this.make());
    this.taken.add(names.index);
    this.fill();
    return names;
  }

  /** The index may be used again: its namespace is gone. */
  giveBack(index: number): void {
    this.taken.delete(index);
  }

  /** Fills up in the background, one at a time: starts have the right of way. */
  fill(): void {
    if (this.filling || this.closed) return;
    this.filling = true;
    void this.fillUp().finally(() => {
      this.filling = false;
    });
  }

  warning(): string | undefined {
    return this.failure && `Network namespaces cannot be made ahead: ${this.failure}`;
  }

  /** Stops filling and removes what nobody took. */
  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.retryTimer);
    // What a `take` waits for is taken and stays; the filling's own goes with the rest.
    await Promise.allSettled(this.making.values());
    await new Promise((resolve) => setImmediate(resolve));
    const unused = this.ready.splice(0).map(({ index }) => index);
    await this.namespaces.remove(unused);
  }

  private async fillUp(): Promise<void> {
    while (!this.closed && this.ready.length + this.making.size < this.size) {
      try {
        this.ready.push(await this.make());
        this.failure = undefined;
        this.retryMs = firstRetryMs;
      } catch (cause) {
        if (this.closed) return;
        this.failure = cause instanceof Error ? cause.message : String(cause);
        this.retryTimer = setTimeout(() => this.fill(), this.retryMs);
        this.retryTimer.unref();
        this.retryMs = Math.min(this.retryMs * 2, lastRetryMs);
        return;
      }
    }
  }

  private async make(): Promise<NetworkNames> {
    while (this.making.size >= maxParallel) await new Promise<void>((resolve) => this.queue.push(resolve));
    if (this.closed) throw new NetworkError('setup-failed', 'the networks are closed');
    const index = this.nextIndex();
    const made = this.namespaces.make(index);
    this.making.set(index, made);
    try {
      return await made;
    } finally {
      this.making.delete(index);
      this.queue.shift()?.();
    }
  }

  private nextIndex(): number {
    const owned = this.owned();
    for (let step = 1; step <= maxIndex; step += 1) {
      const index = ((this.last + step - 1) % maxIndex) + 1;
      if (owned.has(index)) continue;
      this.last = index;
      return index;
    }
    throw new NetworkError(
      'exhausted',
      `all ${maxIndex} networks of this node are in use; end sandboxes or add a node`,
    );
  }
}
