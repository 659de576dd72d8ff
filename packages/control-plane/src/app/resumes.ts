/**
 * Begins resumes: one transaction raises the generation and books the room again, then the node is told. Asked by a user,
 * or by a report that a request waits for a paused sandbox. If we die after the transaction, reconcile tells the node.
 */
import { transition } from '../domain/transition.js';
import { place } from '../scheduler/place.js';
import { updateReservation } from '../store/reservations.js';
import { findSandbox } from '../store/sandboxes.js';
import type { Change, Store } from '../store/store.js';
import type { Dispatcher } from './dispatch.js';
import type { Lifecycle } from './lifecycle.js';

/** What became of a wish to resume. */
export type ResumeOutcome = 'resuming' | 'no-room' | 'node-away' | 'wrong-state';

/** Resumes sandboxes where there is room for them; remembers those that somebody waits for. */
export class Resumes {
  readonly #wanted = new Set<string>();

  constructor(
    private readonly store: Store,
    private readonly dispatcher: Dispatcher,
    private readonly lifecycle: Lifecycle,
    private readonly now: () => number,
  ) {}

  /** Books its room again and tells its node. */
  async resume(id: string, requestId?: string): Promise<ResumeOutcome> {
    let change: Change | undefined;
    const outcome = await this.store.transaction(async (db): Promise<ResumeOutcome> => {
      const before = await findSandbox(db, id);
      if (before?.state === 'resuming') return 'resuming';
      const generation = (before?.generation ?? 0) + 1;
      const after =
        before && transition(before, 'resume', this.now(), { generation, acceptedAt: null, message: null });
      if (before === undefined || after === undefined) return 'wrong-state';
      // Its files are there and nowhere else. What it holds of the disk already is not asked for again.
      const nodes = (await this.dispatcher.snapshot(db)).filter(({ nodeId }) => nodeId === before.nodeId);
      if (!nodes.some(({ reachable }) => reachable)) return 'node-away';
      if (place({ ...before.shape, diskGiB: 0 }, nodes).kind !== 'placed') return 'no-room';
      await this.store.write(db, before, after);
      await updateReservation(db, id, before.shape);
      change = { before, after };
      return 'resuming';
    });
    if (change !== undefined) this.store.announce(change);
    if (outcome === 'resuming' || outcome === 'wrong-state') this.#wanted.delete(id);
    if (outcome === 'resuming') void this.lifecycle.resume(id, requestId);
    return outcome;
  }

  /** A request waits for it: now, or when there is room. */
  async want(id: string): Promise<void> {
    this.#wanted.add(id);
    await this.resume(id);
  }

  /** Nobody waits for it any more. */
  unwant(id: string): void {
    this.#wanted.delete(id);
  }

  /** Tries again those that found no room. */
  async retry(): Promise<void> {
    for (const id of [...this.#wanted]) await this.resume(id);
  }
}
