/**
 * Sends commands about one sandbox to its node: start, fork, pause, resume, remove, policy. One command at a time for each
 * sandbox, so that a remove never overtakes the start it is to undo. Nothing here decides about
 * states: answers go to the report sink. A command that fails is sent again by `reconcile.ts`.
 */
import type { NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { SandboxRecord } from '../domain/record.js';
import type { SandboxState } from '../domain/states.js';
import { requestStop, transition } from '../domain/transition.js';
import type { Fleet } from '../nodes/fleet.js';
import { NodeRefusedError } from '../nodes/node-error.js';
import { findSandbox, findSandboxes } from '../store/sandboxes.js';
import type { Store } from '../store/store.js';
import { KeyedLock } from './bounded.js';
import { nodeSpec } from './node-spec.js';

/** Nothing has changed on a node that answers so. */
const noRoomOnDisk = 507;

/** Where answers of nodes go. */
export type ReportSink = (nodeId: string, report: SandboxReport) => Promise<void>;

/** Whether its node can be given a new policy: one that is paused must not come back with that of before. */
export function mayTakePolicy(state: SandboxState): boolean {
  return state === 'running' || state === 'paused';
}

/** How a sandbox is sent. */
export interface StartOptions {
  /** Also one that the node had accepted and has forgotten. */
  again?: boolean;
  /** Of the client's request that asks for it, if one does; likewise below. */
  requestId?: string;
}

/** Sends the commands. */
export class Lifecycle {
  readonly #locks = new KeyedLock();
  readonly #starting = new Set<string>();
  readonly #removing = new Map<string, Promise<void>>();
  readonly #policies = new Set<string>();
  /** Sources of forks that their node has not answered yet. */
  readonly #forking = new Map<string, number>();

  constructor(
    private readonly store: Store,
    private readonly fleet: Fleet,
    private readonly sink: ReportSink,
    private readonly log: Logger,
    private readonly now: () => number,
  ) {}

  /** Sends a placed sandbox to its node. */
  async start(id: string, { again = false, requestId }: StartOptions = {}): Promise<void> {
    if (this.#starting.has(id)) return;
    this.#starting.add(id);
    try {
      await this.#locks.run(id, () => this.#start(id, again, requestId));
    } finally {
      this.#starting.delete(id);
    }
  }

  /**
   * Lets the node of a pausing sandbox pause it; resolves when that is done. Not in line with the others: a delete must
   * not wait for it.
   * @throws NodeCallError when the node could not, and the sandbox runs on, or when that is not known
   */
  async pause(id: string, requestId?: string): Promise<void> {
    const record = await findSandbox(this.store.db, id);
    if (record?.state !== 'pausing' || record.nodeId === null) return;
    const { nodeId, generation } = record;
    await this.sink(nodeId, await this.fleet.client(nodeId, requestId).pause(id, generation));
  }

  /**
   * Lets the node of a running sandbox make these copies of it, which are placed there; resolves when they are on their way.
   * @throws NodeCallError when there are none, or when that is not known
   */
  async fork(source: SandboxRecord, copyIds: readonly string[], requestId?: string): Promise<void> {
    const { id, nodeId, generation } = source;
    if (nodeId === null) throw new Error(`sandbox ${id} has no node and cannot be forked; a bug`);
    this.#forking.set(id, (this.#forking.get(id) ?? 0) + 1);
    try {
      const records = await findSandboxes(this.store.db, copyIds);
      const copies: NodeSandboxSpec[] = [];
      for (const copyId of copyIds) {
        const record = records.get(copyId);
        // One that was deleted meanwhile is not made.
        if (record?.state === 'pending') copies.push(nodeSpec(record, await this.store.readSecrets(copyId)));
      }
      if (copies.length === 0) return;
      const reports = await this.fleet.client(nodeId, requestId).fork(id, { generation, copies });
      for (const report of reports) await this.sink(nodeId, report);
    } finally {
      const left = (this.#forking.get(id) ?? 1) - 1;
      if (left > 0) this.#forking.set(id, left);
      else this.#forking.delete(id);
    }
  }

  /** Tells the node of a resuming sandbox; what comes of it is in its reports. */
  async resume(id: string, requestId?: string): Promise<void> {
    if (this.#starting.has(id)) return;
    this.#starting.add(id);
    try {
      await this.#locks.run(id, () => this.#resume(id, requestId));
    } finally {
      this.#starting.delete(id);
    }
  }

  /** Removes a stopping sandbox from its node; resolves when that is done, or could not be done now. */
  remove(id: string, requestId?: string): Promise<void> {
    const known = this.#removing.get(id);
    if (known !== undefined) return known;
    const removing = this.#locks
      .run(id, () => this.#remove(id, requestId))
      .finally(() => this.#removing.delete(id));
    this.#removing.set(id, removing);
    return removing;
  }

  /** Sends the newest policy of a running sandbox. Not in line with the others: a delete must not wait for it. */
  async pushEgress(id: string, requestId?: string): Promise<void> {
    if (this.#policies.has(id)) return;
    this.#policies.add(id);
    try {
      // Once more when the policy has changed while the last one was on its way.
      for (let round = 0; round < 3 && (await this.#pushEgress(id, requestId)); round++);
    } finally {
      this.#policies.delete(id);
    }
  }

  /** Resolves when no command is on its way any more. */
  idle(): Promise<void> {
    return this.#locks.idle();
  }

  async #start(id: string, again: boolean, requestId?: string): Promise<void> {
    const record = await findSandbox(this.store.db, id);
    if (record === undefined || record.nodeId === null) return;
    if (record.state !== 'pending' && !(again && record.state === 'starting')) return;
    if (record.acceptedAt !== null && !again) return;
    if (record.forkOf !== undefined) {
      // It begins from what was saved of its source, and that is not there any more.
      if (!this.#forking.has(record.forkOf))
        await this.#giveUp(id, 'The fork that it is of was cut off: fork its source again.');
      return;
    }
    const log = this.log.child({ sandboxId: id, nodeId: record.nodeId });
    try {
      const spec = nodeSpec(record, await this.store.readSecrets(id));
      await this.sink(record.nodeId, await this.fleet.client(record.nodeId, requestId).start(spec));
    } catch (error) {
      if (error instanceof NodeRefusedError && error.status < 500) {
        log.warn({ err: error }, 'the node refused the sandbox');
        await this.#giveUp(id, `Its node refused it: ${error.message}`);
      } else log.warn({ err: error }, 'the sandbox could not be sent to its node; it will be sent again');
    }
  }

  async #resume(id: string, requestId?: string): Promise<void> {
    const record = await findSandbox(this.store.db, id);
    if (record?.state !== 'resuming' || record.nodeId === null) return;
    const { nodeId, generation, rollback } = record;
    const checkpoint = rollback ? { id: rollback.id, memory: rollback.memory } : undefined;
    const order = { generation, ...(checkpoint ? { checkpoint } : {}) };
    try {
      await this.sink(nodeId, await this.fleet.client(nodeId, requestId).resume(id, order));
    } catch (error) {
      const log = this.log.child({ sandboxId: id, nodeId });
      if (error instanceof NodeRefusedError && (error.status < 500 || error.status === noRoomOnDisk)) {
        log.warn({ err: error }, 'the node refused to resume the sandbox');
        const message = `Its node refused to resume it: ${error.message}`;
        await this.store.change(id, (current) => this.#notResumed(current, message));
        await this.#learnEnd(nodeId, id);
      } else log.warn({ err: error }, 'the sandbox could not be resumed yet; it will be tried again');
    }
  }

  /** Nothing has changed on its node. */
  #notResumed(record: SandboxRecord, message: string): SandboxRecord | undefined {
    const { state, rollback, generation } = record;
    if (state !== 'resuming') return undefined;
    // What is reported from there, an end before all, is of the generation before.
    const before = { generation: generation - 1, rollback: null, acceptedAt: this.now(), message };
    if (!rollback) return transition(record, 'paused', this.now(), before);
    const { checkpointId: _, tip: __, ...rest } = record;
    const restored = { ...rest, ...rollback.was };
    return transition(restored, rollback.from === 'running' ? 'ran' : 'paused', this.now(), before);
  }

  /** It may have ended there, and said so while a higher generation was awaited. */
  async #learnEnd(nodeId: string, id: string): Promise<void> {
    try {
      const reports = await this.fleet.client(nodeId).list();
      const report = reports.find(({ sandboxId }) => sandboxId === id);
      if (report?.state === 'stopped' || report?.state === 'failed') await this.sink(nodeId, report);
    } catch (error) {
      this.log.warn({ err: error, sandboxId: id, nodeId }, 'the node did not say what a sandbox is');
    }
  }

  /** The node will never take it. It may still hold something of an earlier try, hence stopping. */
  async #giveUp(id: string, message: string): Promise<void> {
    await this.store.change(id, (record) => requestStop(record, 'START_FAILED', this.now(), { message }));
    void this.remove(id);
  }

  async #remove(id: string, requestId?: string): Promise<void> {
    const record = await findSandbox(this.store.db, id);
    if (record === undefined || record.state !== 'stopping' || record.nodeId === null) return;
    try {
      const report = await this.fleet.client(record.nodeId, requestId).remove(id, record.generation);
      await this.sink(record.nodeId, report);
    } catch (error) {
      this.log.warn(
        { err: error, sandboxId: id, nodeId: record.nodeId },
        'the sandbox could not be removed from its node; it will be tried again',
      );
    }
  }

  /** True when there is a newer policy to send. */
  async #pushEgress(id: string, requestId?: string): Promise<boolean> {
    const record = await findSandbox(this.store.db, id);
    if (record === undefined || !mayTakePolicy(record.state) || record.nodeId === null) return false;
    if (record.egressApplied >= record.egress.generation) return false;
    try {
      const applied = await this.fleet.client(record.nodeId, requestId).putEgress(id, record.egress);
      const change = await this.store.change(id, (current) =>
        current.egressApplied >= applied
          ? undefined
          : { ...current, egressApplied: applied, updatedAt: this.now() },
      );
      return change !== undefined && change.after.egressApplied < change.after.egress.generation;
    } catch (error) {
      this.log.warn(
        { err: error, sandboxId: id },
        'the network policy is not in force yet; it will be sent again',
      );
      return false;
    }
  }
}
