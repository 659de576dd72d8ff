/**
 * Gives sandboxes room: in the transaction of a create when nobody waits, else through the queue,
 * whenever room is freed or a node comes. Reservations are made here and nowhere else.
 */
import type { NodeInfo } from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { SandboxRecord } from '../domain/record.js';
import { requestStop } from '../domain/transition.js';
import type { Fleet } from '../nodes/fleet.js';
import { fieldsBeyondOffer, largestOffers, type NodeSnapshot, place, type Room } from '../scheduler/place.js';
import { nodesFor, planQueue } from '../scheduler/queue.js';
import type { Db } from '../store/database.js';
import { findNodes } from '../store/nodes.js';
import { insertReservation, sumReservations } from '../store/reservations.js';
import { findQueued, isAnyQueued } from '../store/sandboxes.js';
import type { Change, Store } from '../store/store.js';
import type { Lifecycle } from './lifecycle.js';

/** Places sandboxes. */
export class Dispatcher {
  /** Nodes as remembered from before, until they answer. */
  #remembered: NodeInfo[] = [];
  #pass: Promise<void> | undefined;
  #again = false;

  constructor(
    private readonly store: Store,
    private readonly fleet: Fleet,
    private readonly lifecycle: Lifecycle,
    private readonly log: Logger,
    private readonly now: () => number,
  ) {}

  /** Reads what nodes offered before we were restarted. */
  async open(): Promise<void> {
    this.#remembered = await findNodes(this.store.db);
  }

  /** Nodes as placement sees them. */
  async snapshot(db: Db): Promise<NodeSnapshot[]> {
    const reached = this.fleet.infos();
    const infos = reached.length > 0 ? reached : this.#remembered;
    const sums = await sumReservations(db);
    return infos.map((info) => ({
      nodeId: info.nodeId,
      reachable: this.fleet.link(info.nodeId)?.connected ?? false,
      offer: info.offer,
      largest: { ...info.offer, diskGiB: Math.max(info.offer.diskGiB, info.diskTotalGiB ?? 0) },
      reserved: sums.get(info.nodeId) ?? { vcpus: 0, memoryMiB: 0, diskGiB: 0 },
    }));
  }

  /**
   * Decides about a new record: with a node when it can start now, as it is when it has to wait; or
   * which parts of its shape are larger than any node offers. {@link book} once it is stored.
   */
  async admit(
    db: Db,
    record: SandboxRecord,
  ): Promise<{ record: SandboxRecord } | { beyond: (keyof Room)[]; largest: Room }> {
    const nodes = nodesFor(record, await this.snapshot(db));
    const beyond = fieldsBeyondOffer(record.shape, nodes);
    if (beyond.length > 0) return { beyond, largest: largestOffers(nodes) };
    if (await isAnyQueued(db)) return { record };
    const placement = place(record.shape, nodes);
    return { record: placement.kind === 'placed' ? placed(record, placement.nodeId, this.now()) : record };
  }

  /** Books the room of a placed record, in the transaction that stores it. */
  async book(db: Db, record: SandboxRecord): Promise<void> {
    if (record.nodeId !== null) await insertReservation(db, record.id, record.nodeId, record.shape);
  }

  /** Looks at the queue soon; any number of calls at once make one pass, and one more for what came meanwhile. */
  kick(): void {
    if (this.#pass !== undefined) {
      this.#again = true;
      return;
    }
    this.#pass = this.#run()
      .catch((error: unknown) =>
        this.log.error({ err: error }, 'placing the queue failed; reconcile will try again'),
      )
      .finally(() => {
        this.#pass = undefined;
        if (!this.#again) return;
        this.#again = false;
        this.kick();
      });
  }

  /** Resolves when no pass is at work. */
  async idle(): Promise<void> {
    while (this.#pass !== undefined) await this.#pass;
  }

  async #run(): Promise<void> {
    const changes = await this.store.transaction((db) => this.#placeQueue(db));
    for (const change of changes) {
      this.store.announce(change);
      if (change.after.nodeId !== null) void this.lifecycle.start(change.after.id);
    }
  }

  async #placeQueue(db: Db): Promise<Change[]> {
    const queued = await findQueued(db);
    if (queued.length === 0) return [];
    const plan = planQueue(queued, await this.snapshot(db));
    const byId = new Map(queued.map((record) => [record.id, record]));
    const changes: Change[] = [];
    for (const { id, nodeId } of plan.placed) {
      const before = byId.get(id) as SandboxRecord;
      const after = placed(before, nodeId, this.now());
      await this.store.write(db, before, after);
      await this.book(db, after);
      changes.push({ before, after });
    }
    for (const { id, why } of plan.never) {
      const before = byId.get(id) as SandboxRecord;
      const message = `No node can hold it: ${why}. Ask for less.`;
      const after = requestStop(before, 'CAPACITY', this.now(), { message });
      if (after === undefined) continue;
      await this.store.write(db, before, after);
      changes.push({ before, after });
    }
    return changes;
  }
}

/** A record with its node; its lifetime begins here, not while it waited. */
export function placed(record: SandboxRecord, nodeId: string, now: number): SandboxRecord {
  const { timeoutMinutes } = record.request;
  return {
    ...record,
    nodeId,
    placedAt: now,
    stateSince: now,
    updatedAt: now,
    stage: 'image',
    deadlineAt: timeoutMinutes < 0 ? null : now + timeoutMinutes * 60_000,
  };
}
