/**
 * All sandboxes of this node. Called by the node's HTTP routes and by the gateway. Opening it
 * adopts what answers, begins interrupted starts again, and reaps what belongs to nobody.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type {
  NodeCheckpointOrder,
  NodeFork,
  NodeResume,
  NodeSandboxSpec,
  SandboxReport,
} from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { CheckpointRecord } from '../checkpoints/checkpoint-record.js';
import { type CheckpointStore, checkpointHolder, nameOf, pointFor } from '../checkpoints/checkpoint-store.js';
import { SandboxConflictError } from './conflict.js';
import { recordOfCopy } from './copies.js';
import { type FoundRecords, neededSnapshots, type SandboxRecord } from './record.js';
import { ReportHub } from './report-hub.js';
import { Sandbox } from './sandbox.js';
import { copiesHolder } from './save-for-copies.js';
import type { StartParts } from './start-parts.js';
import { killStrayMachines } from './stray-machines.js';

/** How many ended sandboxes are remembered after they were acknowledged, so that a late start of one is refused. */
const maxTombstones = 10_000;

/** The registry of sandboxes. */
export class Sandboxes {
  readonly hub = new ReportHub();
  readonly #all = new Map<string, Sandbox>();
  /** Highest generation that was ended here. */
  readonly #tombstones = new Map<string, number>();

  constructor(
    private readonly parts: StartParts,
    private readonly checkpoints: CheckpointStore,
    private readonly log: Logger,
  ) {}

  /**
   * Adopts, restarts, reaps. After it no process or network of an earlier run is left that no sandbox here names.
   * @param found what the folder of records holds, if it was read already
   */
  async open(found?: FoundRecords): Promise<void> {
    const { records, strays } = found ?? (await this.parts.records.readAll());
    const pending: Sandbox[] = [];
    const adoptions: Promise<void>[] = [];
    for (const record of records) {
      const sandbox = this.#add(record);
      await this.parts.snapshots.need(record.spec.sandboxId, neededSnapshots(record));
      const { state } = record.report;
      const hasMachine = state === 'running' || state === 'pausing';
      // In a rollback whatever machine is named is of no use.
      const isResumed = state === 'resuming' && record.machine && !record.rollback;
      if (hasMachine || isResumed) adoptions.push(sandbox.adopt());
      else if (state === 'paused') adoptions.push(sandbox.adoptPaused());
      else if (state === 'resuming') {
        // Nothing of it has run: it begins anew when what our predecessor may have begun is gone.
        pending.push(sandbox);
        adoptions.push(sandbox.adoptPaused());
      } else if (state === 'stopping') adoptions.push(this.#finishInterruptedEnd(sandbox));
      else if (state === 'pending' || state === 'starting') {
        pending.push(sandbox);
        adoptions.push(sandbox.undoInterruptedStart());
      }
    }
    const settled = await Promise.allSettled(adoptions);
    for (const result of settled) {
      if (result.status === 'rejected') this.log.error({ err: result.reason }, 'adopting a sandbox failed');
    }
    for (const name of strays)
      await rm(join(this.parts.records.root, name), { recursive: true, force: true });
    await this.reap();
    for (const sandbox of pending) sandbox.begin();
  }

  /**
   * Ends every machine and removes every network, hold and limit that no sandbox of ours names. Starts go on
   * meanwhile, so each is asked about when it has been seen, never before.
   */
  async reap(): Promise<void> {
    const killed = await killStrayMachines(
      this.parts.records.root,
      (id, pid) => this.#all.get(id)?.ownsProcess(pid) ?? false,
    );
    if (killed.length > 0) this.log.warn({ pids: killed }, 'ended machines that belong to no sandbox');
    const isLive = (id: string) => {
      const sandbox = this.#all.get(id);
      return sandbox !== undefined && !isOver(sandbox.report);
    };
    for (const holder of await this.parts.images.holders()) {
      if (!isLive(holder) && !this.checkpoints.isHolder(holder)) await this.parts.images.release(holder);
    }
    await this.parts.snapshots.reap();
    await this.parts.cpuLimits.reap(isLive);
    await this.parts.networks.reap();
  }

  /**
   * Accepts a sandbox, or answers what is known of it.
   * @throws SandboxConflictError for a lower generation, or one that was ended here
   */
  async put(spec: NodeSandboxSpec): Promise<SandboxReport> {
    const ended = this.#tombstones.get(spec.sandboxId) ?? -1;
    if (spec.generation <= ended) {
      throw new SandboxConflictError(
        `generation ${spec.generation} of ${spec.sandboxId} was ended on this node`,
      );
    }
    const known = this.#all.get(spec.sandboxId);
    if (known) {
      if (spec.generation === known.spec.generation) return known.report;
      if (spec.generation < known.spec.generation || !isOver(known.report)) {
        throw new SandboxConflictError(`${spec.sandboxId} is here with generation ${known.spec.generation}`);
      }
    }
    const record = this.#newRecord(spec);
    const sandbox = this.#add(record);
    const { snapshots, images, records } = this.parts;
    try {
      if (spec.checkpoint) {
        // From here on it needs the checkpoint no more, only its files.
        await snapshots.need(spec.sandboxId, neededSnapshots(record));
        await images.share(checkpointHolder(spec.checkpoint.id), spec.sandboxId);
      }
      await records.write(record);
    } catch (error) {
      // Not begun, so not here: the same request must be able to begin it once there is room. Its folder goes first.
      await records.remove(spec.sandboxId).catch(() => undefined);
      if (spec.checkpoint) {
        await images.release(spec.sandboxId).catch(() => undefined);
        await snapshots.need(spec.sandboxId, []);
      }
      this.#all.delete(spec.sandboxId);
      throw error;
    }
    sandbox.begin();
    return sandbox.report;
  }

  /** @throws SandboxConflictError when its checkpoint is not here, or cannot be restored here */
  #newRecord(spec: NodeSandboxSpec): SandboxRecord {
    const { sandboxId, generation, checkpoint: use } = spec;
    if (!use) return { form: 1, spec, report: { sandboxId, generation, state: 'pending', timings: {} } };
    const checkpoint = this.checkpoints.require(use.id);
    this.checkpoints.checkFit(checkpoint, use.memory);
    return recordOfCopy(pointFor(checkpoint, use.memory), spec);
  }

  /** Ends it for good. A sandbox that is not here is answered as stopped, and refused should its start still arrive. */
  async delete(sandboxId: string, generation: number): Promise<SandboxReport> {
    const sandbox = this.#all.get(sandboxId);
    if (!sandbox) {
      this.#bury(sandboxId, generation);
      return {
        sandboxId,
        generation,
        state: 'stopped',
        reason: 'DELETED',
        timings: {},
        endedAtUnixMs: Date.now(),
      };
    }
    if (generation < sandbox.spec.generation) {
      throw new SandboxConflictError(`${sandboxId} is here with generation ${sandbox.spec.generation}`);
    }
    // A resume that never came to us had raised it: the end is that generation's, or nobody would believe it.
    sandbox.raiseGeneration(generation);
    if (!isOver(sandbox.report)) {
      await sandbox.end({ reason: 'DELETED', message: 'The sandbox was deleted.' });
    }
    return sandbox.report;
  }

  /**
   * Saves a running sandbox and ends its machine; one that is paused is answered alike.
   * @throws SandboxConflictError when it does not run; VmmError when it could not be saved, and runs on
   */
  async pause(sandboxId: string, generation: number): Promise<SandboxReport> {
    const sandbox = this.#require(sandboxId, generation);
    await sandbox.pause();
    return sandbox.report;
  }

  /**
   * Begins to give a paused sandbox a machine of a raised generation; with a checkpoint, one that runs as well.
   * @throws SandboxConflictError when it is neither, for a generation that is not higher, or a checkpoint that cannot be restored here
   */
  async resume(sandboxId: string, { generation, checkpoint: use }: NodeResume): Promise<SandboxReport> {
    const sandbox = this.#require(sandboxId, undefined);
    if (generation === sandbox.spec.generation) return sandbox.report;
    if (!use) sandbox.resume(generation);
    else {
      const checkpoint = this.checkpoints.require(use.id);
      this.checkpoints.checkFit(checkpoint, use.memory);
      await sandbox.rollBack(generation, pointFor(checkpoint, use.memory));
    }
    return sandbox.report;
  }

  /**
   * Makes a checkpoint of a running sandbox, which goes on, or of a paused one, which stays so. Resolves when it is saved; it is not durable yet.
   * @throws SandboxConflictError when it is neither; VmmError when it could not be saved
   */
  async checkpoint(
    sandboxId: string,
    { generation, checkpointId: id, memory }: NodeCheckpointOrder,
  ): Promise<CheckpointRecord> {
    const known = this.checkpoints.find(id);
    if (known?.sandboxId === sandboxId) return known;
    const sandbox = this.#require(sandboxId, generation);
    const info = await this.parts.driver.describe();
    const order = { id, memory, fingerprint: info.snapshotFingerprint, by: nameOf(info) };
    return this.checkpoints.make(id, sandboxId, () => sandbox.saveForCheckpoint(order));
  }

  /**
   * Makes copies of a running sandbox, which goes on. Resolves when they are saved and on their way: all of them, or none.
   * @throws SandboxConflictError when it does not run, or knows one of them; VmmError when it could not be saved
   */
  async fork(sandboxId: string, { generation, copies }: NodeFork): Promise<SandboxReport[]> {
    const source = this.#require(sandboxId, generation);
    const known = copies.filter((spec) => this.#all.has(spec.sandboxId));
    if (known.length > 0 && known.length < copies.length)
      throw new SandboxConflictError(`${known[0]?.sandboxId} is here already`);
    if (known.length === 0) await this.#makeCopies(source, copies);
    return copies.flatMap((spec) => this.#all.get(spec.sandboxId)?.report ?? []);
  }

  async #makeCopies(source: Sandbox, copies: readonly NodeSandboxSpec[]): Promise<void> {
    const { snapshots, images, records } = this.parts;
    const { snapshotId, recordOf } = await source.saveForCopies();
    const made: Sandbox[] = [];
    try {
      for (const spec of copies) {
        // Deleted before it was here.
        if (spec.generation <= (this.#tombstones.get(spec.sandboxId) ?? -1)) continue;
        const record = recordOf(spec);
        made.push(this.#add(record));
        await snapshots.need(spec.sandboxId, neededSnapshots(record));
        await images.share(source.id, spec.sandboxId);
        await records.write(record);
      }
    } catch (error) {
      for (const copy of made) await this.#forgetCopy(copy);
      // What its copies were to share went with it.
      if (source.isEnding)
        throw new SandboxConflictError(`${source.id} was ended while it was forked`, { cause: error });
      throw error;
    } finally {
      await snapshots.need(copiesHolder(snapshotId), []);
    }
    for (const copy of made) {
      if (copy.report.state === 'pending') copy.begin(source);
      else await this.#takeBackFrom(copy);
    }
  }

  async #forgetCopy(copy: Sandbox): Promise<void> {
    this.#all.delete(copy.id);
    await this.#takeBackFrom(copy);
  }

  /** One that was deleted before it began: what it was given meanwhile is nobody's. */
  async #takeBackFrom({ id }: Sandbox): Promise<void> {
    const { snapshots, images, records } = this.parts;
    await images.release(id).catch(() => undefined);
    await snapshots.need(id, []);
    if (!this.#all.has(id)) await records.remove(id).catch(() => undefined);
  }

  #require(sandboxId: string, generation: number | undefined): Sandbox {
    const sandbox = this.#all.get(sandboxId);
    if (!sandbox) throw new SandboxConflictError(`${sandboxId} is not on this node`);
    if (generation !== undefined && generation !== sandbox.spec.generation)
      throw new SandboxConflictError(`${sandboxId} is here with generation ${sandbox.spec.generation}`);
    return sandbox;
  }

  /** The control plane has recorded the end: forget it. */
  async acknowledge(sandboxId: string, generation: number): Promise<void> {
    const sandbox = this.#all.get(sandboxId);
    if (!sandbox || sandbox.spec.generation > generation || !isOver(sandbox.report)) return;
    this.#bury(sandboxId, sandbox.spec.generation);
    this.#all.delete(sandboxId);
    await this.parts.records.remove(sandboxId);
  }

  get(sandboxId: string): Sandbox | undefined {
    return this.#all.get(sandboxId);
  }

  list(): Sandbox[] {
    return [...this.#all.values()];
  }

  /** Ends all, at once. */
  async endAll(message: string): Promise<void> {
    await Promise.all(
      this.list()
        .filter((sandbox) => !isOver(sandbox.report))
        .map((sandbox) => sandbox.end({ reason: 'DELETED', message })),
    );
  }

  /** Lets go of all machines without ending them. */
  detachAll(): void {
    for (const sandbox of this.#all.values()) sandbox.detach();
  }

  #add(record: SandboxRecord): Sandbox {
    const sandbox = new Sandbox(record, this.parts, this.log, (report) => this.hub.publish(report));
    this.#all.set(record.spec.sandboxId, sandbox);
    return sandbox;
  }

  async #finishInterruptedEnd(sandbox: Sandbox): Promise<void> {
    await sandbox.undoInterruptedStart();
    await this.parts.images.release(sandbox.id);
    await sandbox.end({ reason: 'DELETED', message: 'The sandbox was deleted.' });
  }

  #bury(sandboxId: string, generation: number): void {
    this.#tombstones.set(sandboxId, Math.max(generation, this.#tombstones.get(sandboxId) ?? -1));
    if (this.#tombstones.size > maxTombstones) {
      for (const oldest of this.#tombstones.keys()) {
        this.#tombstones.delete(oldest);
        break;
      }
    }
  }
}

function isOver(report: SandboxReport): boolean {
  return report.state === 'stopped' || report.state === 'failed';
}
