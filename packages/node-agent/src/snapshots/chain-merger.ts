/**
 * Keeps the disks of this node on few layers: where there are many, some are made one in the background. One job at a time for
 * the host, slowly; machines run on, and may be saved, paused, copied and ended meanwhile, as layers never change. Opened by
 * `agent.ts`; `Sandbox` tells of saves and waits for room.
 *
 * If we die: a merged layer that no record names is removed with what nobody needs, and the job begins anew.
 */
import { EventEmitter, once } from 'node:events';
import { statfs } from 'node:fs/promises';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type { VmmDriver } from '@sandlot/vmm';
import type { Logger } from 'pino';
import type { Checksums } from './checksums.js';
import { chainLimits, mergeableLayers, planMerge, withMerged } from './merge-plan.js';
import type { SnapshotStore } from './snapshot-store.js';

/** A disk of somebody, as layers. */
export interface Chain {
  /** Of its owner, for the log. */
  readonly id: string;
  /** Snapshots whose disks lie below it, the lowest first. */
  readonly layers: readonly string[];
  /**
   * Puts the disk above one layer in place of several that hold the same, and lets go of those. Resolves with false when it cannot be
   * done at the moment.
   */
  replaceLayers(run: readonly string[], merged: string): Promise<boolean>;
}

/** What the merger works with. */
export interface MergerParts {
  driver: Pick<VmmDriver, 'mergeLayers'>;
  snapshots: SnapshotStore;
  checksums: Checksums;
  chains(): readonly Chain[];
  log: Logger;
}

/** Copied in a second when nobody waits; a guest that uses the same disk must not notice. */
const bytesPerSecond = 64 * 1024 * 1024;
/** Slower than this the disk is stuck. */
const leastBytesPerSecond = 2 * 1024 * 1024;
const leastDeadlineMs = 60_000;
/** How long a save waits for a merge. */
const roomTimeoutMs = 30_000;
/** A sandbox may be saved at the moment in which its merge is done: so long it is asked again. */
const replaceTimeoutMs = 60_000;
const replaceRetryMs = 50;
const lookIntervalMs = 15_000;
const firstRetryMs = 10_000;
/** A chain that fails so often is left alone until it has changed. */
const mostFailures = 6;
/** Of the disk: what must stay free, so that guests can write. */
const keptFreeFraction = 0.02;
/** Merges that may be of use to another chain. */
const mostRemembered = 1_000;

interface Failure {
  layers: string;
  count: number;
  retryAtMs: number;
}

/** What a merger has done since it was opened. */
export interface MergeCounts {
  /** Layers that were made of several. */
  merged: number;
  /** Attempts that failed. */
  failed: number;
  /** Of content that was copied. */
  bytes: number;
  /** That the making of layers took, the waits of its pace included. */
  seconds: number;
}

/** The merger of a node. */
export class ChainMerger {
  readonly #counts: MergeCounts = { merged: 0, failed: 0, bytes: 0, seconds: 0 };
  readonly #closing = new AbortController();
  readonly #timer: NodeJS.Timeout;
  readonly #failures = new Map<string, Failure>();
  /** Chains for which somebody waits, and how many. */
  readonly #hurried = new Map<string, number>();
  /** What was made of which layers. */
  readonly #made = new Map<string, string>();
  #running: Promise<void> | undefined;
  /** Emits `attempt` when one has ended, however. */
  readonly #attempts = new EventEmitter().setMaxListeners(0);

  constructor(private readonly parts: MergerParts) {
    this.#timer = setInterval(() => this.look(), lookIntervalMs);
    this.#timer.unref();
  }

  /** For the node's metrics. */
  get counts(): Readonly<MergeCounts> {
    return this.#counts;
  }

  /** Something has changed: looks for what there is to do. */
  look(): void {
    if (this.#running || this.#closing.signal.aborted || !this.parts.driver.mergeLayers) return;
    this.#running = this.#run()
      .catch((error: unknown) => this.parts.log.error({ err: error }, 'merging layers failed'))
      .finally(() => {
        this.#running = undefined;
      });
  }

  /**
   * Resolves when the disk may get one layer more: at once for nearly all, after a merge for one that is saved faster than merges are done.
   * Never rejects but by the signal: a disk that cannot be merged gets longer.
   */
  async room(chain: Chain, signal: AbortSignal): Promise<void> {
    const { id } = chain;
    const deadline = AbortSignal.timeout(roomTimeoutMs);
    const either = AbortSignal.any([signal, deadline, this.#closing.signal]);
    this.#hurried.set(id, (this.#hurried.get(id) ?? 0) + 1);
    try {
      const before = this.#failures.get(id)?.count ?? 0;
      while (chain.layers.length >= chainLimits.cap && this.parts.driver.mergeLayers) {
        signal.throwIfAborted();
        if (either.aborted || (this.#failures.get(id)?.count ?? 0) > before) {
          this.parts.log.warn(
            { sandbox: id, layers: chain.layers.length },
            'its layers could not be merged in time: its disk gets deeper than it should',
          );
          return;
        }
        const attempt = once(this.#attempts, 'attempt', { signal: either });
        this.look();
        await attempt.catch(() => undefined);
      }
    } finally {
      const left = (this.#hurried.get(id) ?? 1) - 1;
      if (left > 0) this.#hurried.set(id, left);
      else this.#hurried.delete(id);
    }
  }

  /** Ends what is under way. Resolves when it has. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#closing.abort(new Error('the node agent is stopping'));
    await this.#running;
  }

  async #run(): Promise<void> {
    for (let chain = this.#next(); chain && !this.#closing.signal.aborted; chain = this.#next()) {
      try {
        await this.#merge(chain);
        this.#failures.delete(chain.id);
      } catch (error) {
        if (!this.#closing.signal.aborted) this.#noteFailure(chain, error);
      }
      this.#attempts.emit('attempt');
      // Who waited for it decides first what is still waited for.
      await setImmediate();
    }
  }

  /** Whoever is waited for, then the deepest. */
  #next(): Chain | undefined {
    const now = performance.now();
    const due = this.parts.chains().filter((chain) => {
      const { id, layers } = chain;
      if (layers.length < chainLimits.mergeAt) return false;
      const failure = this.#failures.get(id);
      if (!failure || this.#hurried.has(id)) return true;
      return failure.retryAtMs <= now && (failure.count < mostFailures || failure.layers !== layers.join());
    });
    const rank = ({ id, layers }: Chain) => layers.length + (this.#hurried.has(id) ? 1_000_000 : 0);
    return due.sort((one, other) => rank(other) - rank(one))[0];
  }

  #noteFailure({ id, layers }: Chain, error: unknown): void {
    this.#counts.failed++;
    const count = (this.#failures.get(id)?.count ?? 0) + 1;
    const retryAtMs = performance.now() + firstRetryMs * 2 ** (count - 1);
    this.#failures.set(id, { layers: layers.join(), count, retryAtMs });
    this.parts.log.warn({ err: error, sandbox: id, count }, 'layers could not be merged');
    const known = new Set(this.parts.chains().map((chain) => chain.id));
    for (const old of this.#failures.keys()) if (!known.has(old)) this.#failures.delete(old);
  }

  async #merge(chain: Chain): Promise<void> {
    const { snapshots, log } = this.parts;
    const others = this.parts.chains().filter((other) => other !== chain);
    const part = mergeableLayers(
      chain.layers,
      others.map((other) => other.layers),
    );
    const layers = chain.layers.slice(0, part);
    const sizes = await Promise.all(layers.map((id) => snapshots.diskBytes(id)));
    const run = layers.slice(planMerge(sizes));
    const id = this.#find(run) ?? snapshots.newId();
    const holder = `merge into ${id}`;
    const startedMs = performance.now();
    // Before anything else: they may be let go of by all others meanwhile.
    await snapshots.need(holder, { whole: [], disks: [id, ...run] });
    try {
      if (!withMerged(chain.layers, run, id)) return;
      if (this.#find(run) === undefined) await this.#make(id, run, chain);
      const taken = await this.#replace(run, id, chain);
      const ms = Math.round(performance.now() - startedMs);
      log.info(
        { sandbox: chain.id, merged: run.length, layers: chain.layers.length, taken, ms },
        'merged layers',
      );
    } finally {
      await snapshots.need(holder, []);
    }
  }

  #find(run: readonly string[]): string | undefined {
    const id = this.#made.get(run.join());
    return id !== undefined && this.parts.snapshots.isNeeded(id) ? id : undefined;
  }

  async #make(id: string, run: readonly string[], chain: Chain): Promise<void> {
    const { snapshots, driver, checksums } = this.parts;
    const bytes = (await Promise.all(run.map((layer) => snapshots.diskBytes(layer)))).reduce(
      (a, b) => a + b,
      0,
    );
    await this.#requireRoom(bytes);
    const deadlineMs = leastDeadlineMs + Math.ceil((bytes / leastBytesPerSecond) * 1000);
    const signal = AbortSignal.any([this.#closing.signal, AbortSignal.timeout(deadlineMs)]);
    // What of them a checkpoint has found to be right must still be so, and the next checkpoint need not read all of the new one.
    let kept = false;
    for (const layer of run.map((one) => snapshots.folderOf(one))) {
      if (!(await checksums.has(layer))) continue;
      await checksums.verify(layer, 'disk', signal);
      kept = true;
    }
    const readableBy = snapshots.groupOf(id);
    let dueMs = performance.now();
    const pace = async (copied: number): Promise<void> => {
      if (!this.#isWanted(run)) throw new Error('nobody stands above them any more');
      if (this.#hurried.has(chain.id)) return;
      // What was lost by waiting for the disk is not made up for.
      dueMs = Math.max(dueMs, performance.now() - 100) + (copied / bytesPerSecond) * 1000;
      const waitMs = dueMs - performance.now();
      if (waitMs > 1) await sleep(waitMs);
    };
    const begunMs = performance.now();
    const made = await driver.mergeLayers?.(
      {
        layers: run.map((layer) => snapshots.diskOf(layer)),
        folder: await snapshots.makeFolder(id),
        ...(readableBy === undefined ? {} : { readableBy }),
        pace,
      },
      signal,
    );
    if (kept) await checksums.settle(snapshots.folderOf(id), signal);
    this.#counts.merged++;
    this.#counts.bytes += made?.bytes ?? 0;
    this.#counts.seconds += (performance.now() - begunMs) / 1000;
    this.#made.set(run.join(), id);
    if (this.#made.size > mostRemembered) this.#made.delete(this.#made.keys().next().value as string);
  }

  #isWanted(run: readonly string[]): boolean {
    return this.parts.chains().some(({ layers }) => withMerged(layers, run, '') !== undefined);
  }

  /** Guests write to the same disk: it is not filled for this. */
  async #requireRoom(bytes: number): Promise<void> {
    const { bavail, bsize, blocks } = await statfs(this.parts.snapshots.root);
    if ((bavail - blocks * keptFreeFraction) * bsize < bytes)
      throw new Error(`there is no room on the host's disk for a layer of up to ${bytes} bytes`);
  }

  /** Tells all who stand above the run; resolves with how many have taken the new one. The first to want it is asked until it can. */
  async #replace(run: readonly string[], id: string, first: Chain): Promise<number> {
    let taken = 0;
    const standsAbove = (chain: Chain) => withMerged(chain.layers, run, id) !== undefined;
    const deadlineMs = performance.now() + replaceTimeoutMs;
    while (standsAbove(first)) {
      if (await first.replaceLayers(run, id)) taken++;
      else if (performance.now() > deadlineMs) throw new Error('it had no moment for its new layer');
      else await sleep(replaceRetryMs, undefined, { signal: this.#closing.signal });
    }
    for (const chain of this.parts.chains()) {
      try {
        if (standsAbove(chain) && (await chain.replaceLayers(run, id))) taken++;
      } catch (error) {
        this.parts.log.warn({ err: error, sandbox: chain.id }, 'it stays above layers that were merged');
      }
    }
    return taken;
  }
}
