/**
 * What is done about checkpoints at their nodes: made, brought to the disk for good, deleted, and compared with what the node
 * has. Each is recorded before its node is told. If we die in between, the next pass of `reconcile` goes on: it asks
 * what became of a save, repeats the rest, ends those whose time is over.
 */
import type { NodeCheckpoint } from '@sandlot/protocol';
import type { Logger } from 'pino';
import {
  type CheckpointRecord,
  failedRetentionMs,
  isExpired,
  moveCheckpoint,
  withFacts,
} from '../domain/checkpoint.js';
import type { Fleet } from '../nodes/fleet.js';
import { NodeRefusedError } from '../nodes/node-error.js';
import {
  deleteCheckpoint,
  findCheckpoint,
  findCheckpoints,
  findCheckpointsIn,
  findExpiredCheckpoints,
  purgeFailedCheckpoints,
} from '../store/checkpoints.js';
import { findSandbox } from '../store/sandboxes.js';
import type { Store } from '../store/store.js';

/** How long a node may have a checkpoint that has no record before it is told to delete it. */
const unknownGraceMs = 60_000;
/** Checkpoints that are worked on at once in one pass. */
const worksAtOnce = 4;

/** Does the work. */
export class CheckpointWork {
  readonly #busy = new Map<string, Promise<void>>();
  readonly #unknownSince = new Map<string, number>();

  constructor(
    private readonly store: Store,
    private readonly fleet: Fleet,
    private readonly log: Logger,
    private readonly now: () => number,
  ) {}

  /**
   * Records a checkpoint by `insert`, and lets the node of its sandbox make it. Resolves when the instant is taken, or it has failed.
   * @throws NodeRefusedError when the sandbox is not in a state for it: there is no record any more then
   */
  async make(
    record: CheckpointRecord,
    insert: () => Promise<void>,
    generation: number,
    requestId: string,
  ): Promise<void> {
    const { id } = record;
    // From here on, so that no pass takes it for one that was cut off.
    await this.#alone(id, async () => {
      await insert();
      const { nodeId, sandboxId, withMemory: memory } = record;
      const order = { generation, checkpointId: id, memory };
      try {
        await this.#note(id, await this.fleet.client(nodeId, requestId).checkpoint(sandboxId, order));
      } catch (error) {
        if (!(error instanceof NodeRefusedError)) {
          this.log.warn({ err: error, checkpointId: id }, 'what became of a checkpoint is not known yet');
          return;
        }
        if (error.status === 404 || error.status === 409) {
          await deleteCheckpoint(this.store.db, id);
          throw error;
        }
        await this.#fail(id, `The sandbox could not be saved, and is as it was: ${error.message}`);
      }
    });
    this.settle(id);
  }

  /** Lets the node bring a checkpoint to the disk for good. */
  settle(id: string): void {
    void this.#alone(id, async () => {
      const record = await findCheckpoint(this.store.db, id);
      if (record?.state !== 'frozen') return;
      try {
        await this.#note(id, await this.fleet.client(record.nodeId).settleCheckpoint(id));
      } catch (error) {
        if (!(error instanceof NodeRefusedError)) {
          this.log.warn(
            { err: error, checkpointId: id },
            'a checkpoint is not durable yet; it is tried again',
          );
          return;
        }
        // Nothing may be left of it that nobody can use.
        await this.fleet.client(record.nodeId).removeCheckpoint(id);
        await this.#fail(id, `What was saved could not be brought to the disk: ${error.message}`);
      }
    }).catch((error: unknown) =>
      this.log.warn({ err: error, checkpointId: id }, 'a checkpoint could not be settled; it is tried again'),
    );
  }

  /** Deletes one that is marked so; resolves when its node has, or could not now. */
  remove(id: string): Promise<void> {
    return this.#alone(id, async () => {
      const record = await findCheckpoint(this.store.db, id);
      if (record?.state !== 'deleting') return;
      await this.fleet.client(record.nodeId).removeCheckpoint(id);
      await deleteCheckpoint(this.store.db, id);
    }).catch((error: unknown) =>
      this.log.warn({ err: error, checkpointId: id }, 'a checkpoint could not be deleted; it is tried again'),
    );
  }

  /** True while something is done about it. */
  isBusy(id: string): boolean {
    return this.#busy.has(id);
  }

  /** What it is now, with its bytes as its node counts them at this moment; as it was last known where the node is silent. */
  async refresh(record: CheckpointRecord): Promise<CheckpointRecord> {
    const { id, nodeId, state } = record;
    if (state !== 'durable' || !this.#isConnected(nodeId)) return record;
    try {
      return (await this.#note(id, await this.fleet.client(nodeId).getCheckpoint(id))) ?? record;
    } catch (error) {
      this.log.debug({ err: error, checkpointId: id }, 'a checkpoint could not be looked at');
      return record;
    }
  }

  /** What is due. `thorough` also compares with the nodes. */
  async reconcile(thorough: boolean): Promise<void> {
    const now = this.now();
    for (const record of await findExpiredCheckpoints(this.store.db, now)) await this.expire(record, now);
    const open = await findCheckpointsIn(this.store.db, ['pending', 'frozen', 'deleting']);
    const due = open.filter(({ id, nodeId }) => !this.isBusy(id) && this.#isConnected(nodeId));
    for (const record of due.slice(0, worksAtOnce)) await this.#goOn(record);
    if (!thorough) return;
    await purgeFailedCheckpoints(this.store.db, now - failedRetentionMs);
    for (const link of this.fleet.links) {
      if (!link.connected || link.info === undefined) continue;
      try {
        await this.#compare(link.info.nodeId, await link.client.checkpoints());
      } catch (error) {
        this.log.warn(
          { err: error, nodeId: link.info.nodeId },
          'comparing checkpoints failed; it is tried again',
        );
      }
    }
  }

  /** Resolves when nothing is done any more. */
  async idle(): Promise<void> {
    while (this.#busy.size > 0) await Promise.allSettled(this.#busy.values());
  }

  async expire(record: CheckpointRecord, now: number): Promise<void> {
    const moved = await this.store.changeCheckpoint(record.id, (current) =>
      isExpired(current, now) ? moveCheckpoint(current, 'deleting', now) : undefined,
    );
    if (moved) void this.remove(record.id);
  }

  async #goOn({ id, state, nodeId }: CheckpointRecord): Promise<void> {
    if (state === 'frozen') return this.settle(id);
    if (state === 'deleting') return void this.remove(id);
    try {
      await this.#note(id, await this.fleet.client(nodeId).getCheckpoint(id));
      this.settle(id);
    } catch (error) {
      if (!(error instanceof NodeRefusedError) || error.status !== 404) throw error;
      await this.#fail(
        id,
        'It was cut off by a restart of the server. The sandbox is as it was: make another one.',
      );
    }
  }

  async #compare(nodeId: string, found: readonly NodeCheckpoint[]): Promise<void> {
    const ids = found.map(({ id }) => id);
    const records = ids.length === 0 ? new Map() : await findCheckpoints(this.store.db, ids);
    const now = this.now();
    for (const facts of found) {
      const record = records.get(facts.id) as CheckpointRecord | undefined;
      if (record && record.state !== 'failed') {
        this.#unknownSince.delete(facts.id);
        if (record.state === 'durable') await this.#note(facts.id, facts);
        continue;
      }
      const since = this.#unknownSince.get(facts.id) ?? now;
      this.#unknownSince.set(facts.id, since);
      // A database put back by mistake must not cost checkpoints at once.
      if (!record && now - since < unknownGraceMs) continue;
      this.log.warn(
        { checkpointId: facts.id, nodeId },
        'a node has a checkpoint that is nobody’s: deleting it',
      );
      await this.fleet.client(nodeId).removeCheckpoint(facts.id);
      this.#unknownSince.delete(facts.id);
    }
    const known = new Set(ids);
    for (const record of await findCheckpointsIn(this.store.db, ['durable'])) {
      if (record.nodeId !== nodeId || known.has(record.id) || this.isBusy(record.id)) continue;
      // Made durable after the list was.
      if (now - record.updatedAt < unknownGraceMs) continue;
      await this.#fail(record.id, 'Its node does not have it any more.');
    }
  }

  /** Takes in what a node says. The sandbox's next checkpoint comes after this one. */
  async #note(id: string, facts: NodeCheckpoint): Promise<CheckpointRecord | undefined> {
    const now = this.now();
    let wasPending = false;
    const changed = await this.store.changeCheckpoint(id, (record) => {
      wasPending = record.state === 'pending';
      return withFacts(record, facts, now);
    });
    if (changed && wasPending) {
      const tip = { id, depth: changed.depth };
      if (await findSandbox(this.store.db, changed.sandboxId))
        await this.store.change(changed.sandboxId, (record) =>
          record.endedAt === null ? { ...record, tip } : undefined,
        );
    }
    return changed;
  }

  async #fail(id: string, error: string): Promise<void> {
    this.log.warn({ checkpointId: id, error }, 'a checkpoint has failed');
    await this.store.changeCheckpoint(id, (record) =>
      moveCheckpoint(record, 'failed', this.now(), { error, ownBytes: 0, sharedBytes: 0 }),
    );
  }

  #isConnected(nodeId: string): boolean {
    return this.fleet.link(nodeId)?.connected ?? false;
  }

  /** One thing at a time about each. */
  #alone(id: string, work: () => Promise<void>): Promise<void> {
    const before = this.#busy.get(id) ?? Promise.resolve();
    const mine = before.catch(() => undefined).then(work);
    const tail: Promise<void> = mine
      .catch(() => undefined)
      .finally(() => {
        if (this.#busy.get(id) === tail) this.#busy.delete(id);
      });
    this.#busy.set(id, tail);
    return mine;
  }
}
