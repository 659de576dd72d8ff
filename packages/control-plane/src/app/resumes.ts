/**
 * Begins resumes: one transaction raises the generation and books the room again, then the node is told. Asked by a user,
 * or by a report that a request waits for a paused sandbox. If we die after the transaction, reconcile tells the node.
 */
import type { SandboxRecord } from '../domain/record.js';
import { type Patch, transition } from '../domain/transition.js';
import { place } from '../scheduler/place.js';
import { updateReservation } from '../store/reservations.js';
import { findSandbox } from '../store/sandboxes.js';
import type { Change, Store } from '../store/store.js';
import type { Dispatcher } from './dispatch.js';
import type { Lifecycle } from './lifecycle.js';

/** What became of a wish to resume. */
export type ResumeOutcome = 'resuming' | 'no-room' | 'node-away' | 'wrong-state';

/** A checkpoint that a sandbox is to go on from. */
export interface RollbackPoint {
  id: string;
  memory: boolean;
  depth: number;
}

function pointPatch(
  { state, checkpointId, tip }: SandboxRecord,
  { id, memory, depth }: RollbackPoint,
): Patch {
  const from = state === 'paused' ? 'paused' : 'running';
  const was = {
    ...(checkpointId === undefined ? {} : { checkpointId }),
    ...(tip === undefined ? {} : { tip }),
  };
  return { rollback: { id, memory, from, was }, checkpointId: id, tip: { id, depth } };
}

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
  resume(id: string, requestId?: string): Promise<ResumeOutcome> {
    return this.#begin(id, undefined, requestId);
  }

  /** The same with a checkpoint that it is to go on from; one that runs has its room already. */
  rollBack(id: string, checkpoint: RollbackPoint, requestId?: string): Promise<ResumeOutcome> {
    return this.#begin(id, checkpoint, requestId);
  }

  async #begin(id: string, point: RollbackPoint | undefined, requestId?: string): Promise<ResumeOutcome> {
    let change: Change | undefined;
    const outcome = await this.store.transaction(async (db): Promise<ResumeOutcome> => {
      const before = await findSandbox(db, id);
      if (before?.state === 'resuming') return point ? 'wrong-state' : 'resuming';
      const generation = (before?.generation ?? 0) + 1;
      const patch = { generation, acceptedAt: null, message: null, rollback: null };
      const after =
        before &&
        (point
          ? transition(before, 'rollback', this.now(), { ...patch, ...pointPatch(before, point) })
          : transition(before, 'resume', this.now(), patch));
      if (before === undefined || after === undefined) return 'wrong-state';
      // Its files are there and nowhere else. What it holds of the disk already is not asked for again.
      const nodes = (await this.dispatcher.snapshot(db)).filter(({ nodeId }) => nodeId === before.nodeId);
      if (!nodes.some(({ reachable }) => reachable)) return 'node-away';
      const hasRoom = before.state !== 'paused';
      if (!hasRoom && place({ ...before.shape, diskGiB: 0 }, nodes).kind !== 'placed') return 'no-room';
      await this.store.write(db, before, after);
      if (!hasRoom) await updateReservation(db, id, before.shape);
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
