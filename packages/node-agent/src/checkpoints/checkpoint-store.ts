/**
 * All checkpoints of this node. Called by the node's HTTP routes and by `sandboxes.ts`. A checkpoint is here from the moment in
 * which its sandbox was saved; it is durable when its files are on the disk for good, with checksums.
 *
 * If we die: what has a record is here again; a save that had none by then leaves nothing, as `SnapshotStore.reap` finds it.
 */
import type { ImageStore } from '@sandlot/images';
import type { NodeCheckpoint } from '@sandlot/protocol';
import type { DriverInfo } from '@sandlot/vmm';
import { SandboxConflictError } from '../sandbox/conflict.js';
import type { Checksums } from '../snapshots/checksums.js';
import type { SnapshotStore } from '../snapshots/snapshot-store.js';
import {
  type CheckpointFolder,
  type CheckpointRecord,
  checkpointNeeds,
  snapshotsOf,
} from './checkpoint-record.js';
import { verifyPoint } from './verify-point.js';

/** What it works with. */
export interface CheckpointParts {
  folder: CheckpointFolder;
  snapshots: SnapshotStore;
  checksums: Checksums;
  images: ImageStore;
  driver: DriverInfo;
}

const holderPrefix = 'checkpoint-';

/** Under which name a checkpoint needs snapshots and holds an image. */
export function checkpointHolder(id: string): string {
  return `${holderPrefix}${id}`;
}

/** The registry of checkpoints. */
export class CheckpointStore {
  readonly #all = new Map<string, CheckpointRecord>();
  /** Of those that are being saved. */
  readonly #begun = new Set<string>();
  readonly #settling = new Map<string, { done: Promise<void>; abort: AbortController }>();

  constructor(private readonly parts: CheckpointParts) {}

  /** Reads them, and says what they need. Called before anything is reaped. */
  async open(): Promise<void> {
    for (const record of await this.parts.folder.readAll()) {
      this.#all.set(record.id, record);
      await this.parts.snapshots.need(checkpointHolder(record.id), checkpointNeeds(record));
    }
  }

  /** Whether a holder of an image is one of them. */
  isHolder(name: string): boolean {
    const id = name.slice(holderPrefix.length);
    return name.startsWith(holderPrefix) && (this.#all.has(id) || this.#begun.has(id));
  }

  /**
   * Makes one: `save` saves the sandbox, with the new snapshots needed in the name of the checkpoint. What fails leaves nothing of it; most of
   * what can fail for want of room is done before the save.
   */
  async make(
    id: string,
    sandboxId: string,
    save: () => Promise<Omit<CheckpointRecord, 'form' | 'durable'>>,
  ): Promise<CheckpointRecord> {
    const { images, folder, snapshots } = this.parts;
    const holder = checkpointHolder(id);
    this.#begun.add(id);
    try {
      await images.share(sandboxId, holder);
      const record: CheckpointRecord = { form: 1, durable: false, ...(await save()) };
      await snapshots.need(holder, checkpointNeeds(record));
      await folder.write(record);
      this.#all.set(id, record);
      return record;
    } catch (error) {
      await images.release(holder).catch(() => undefined);
      await folder.remove(id).catch(() => undefined);
      await snapshots.need(holder, []);
      throw error;
    } finally {
      this.#begun.delete(id);
    }
  }

  /** One of them. */
  find(id: string): CheckpointRecord | undefined {
    return this.#all.get(id);
  }

  /** @throws SandboxConflictError when it is not here */
  require(id: string): CheckpointRecord {
    const record = this.#all.get(id);
    if (!record) throw new SandboxConflictError(`checkpoint ${id} is not on this node`);
    return record;
  }

  /** What is true of one now. */
  async describe(record: CheckpointRecord): Promise<NodeCheckpoint> {
    const { id, sandboxId, point, consistency, note, durable, made, createdAtUnixMs } = record;
    return {
      ...{ id, sandboxId, consistency, durable, createdAtUnixMs },
      memory: point.memory !== undefined,
      diskBytes: point.boot.diskBytes,
      ...(note === undefined ? {} : { note }),
      ...(made ? { memoryFingerprint: made.fingerprint } : {}),
      ...(await this.parts.snapshots.bytesNeededBy(checkpointHolder(id))),
    };
  }

  /** All of them. */
  list(): Promise<NodeCheckpoint[]> {
    return Promise.all([...this.#all.values()].map((record) => this.describe(record)));
  }

  /** Resolves when it is durable. */
  async settle(record: CheckpointRecord): Promise<void> {
    if (record.durable) return;
    let settling = this.#settling.get(record.id);
    if (!settling) {
      const abort = new AbortController();
      const done = this.#settle(record, abort.signal).finally(() => this.#settling.delete(record.id));
      settling = { done, abort };
      this.#settling.set(record.id, settling);
    }
    await settling.done;
  }

  async #settle(record: CheckpointRecord, signal: AbortSignal): Promise<void> {
    const { snapshots, checksums, folder } = this.parts;
    for (const id of snapshotsOf(record)) await checksums.settle(snapshots.folderOf(id), signal);
    signal.throwIfAborted();
    await folder.write({ ...record, durable: true });
    record.durable = true;
  }

  /**
   * Says whether it can be restored here, and reads what it is made of where that was not done lately.
   * @throws SandboxConflictError with the reason; DamagedFileError
   */
  async check(record: CheckpointRecord, memory: boolean, signal: AbortSignal): Promise<void> {
    this.checkFit(record, memory);
    const { snapshots, checksums } = this.parts;
    await verifyPoint(pointFor(record, memory), { snapshots, checksums }, signal);
  }

  /** What of that is known without looking. @throws SandboxConflictError */
  checkFit({ id, durable, made, point }: CheckpointRecord, memory: boolean): void {
    if (!durable) throw new SandboxConflictError(`checkpoint ${id} is not durable yet`);
    if (!memory) return;
    if (point.memory === undefined || !made)
      throw new SandboxConflictError(`checkpoint ${id} has no memory, only a disk`);
    const { driver } = this.parts;
    if (made.fingerprint === driver.snapshotFingerprint) return;
    const here = nameOf(driver);
    const why =
      made.by === here
        ? `here is another processor or device model (${here} in both)`
        : `it was made by ${made.by}, and here is ${here}`;
    throw new SandboxConflictError(
      `the memory of checkpoint ${id} cannot go on on this node: ${why}. Its disk alone can be restored.`,
    );
  }

  /** Forgets it; files that nobody else needs go. One that is not here is none. */
  async remove(id: string): Promise<void> {
    const settling = this.#settling.get(id);
    settling?.abort.abort(new Error('the checkpoint is deleted'));
    await settling?.done.catch(() => undefined);
    const { folder, snapshots, images, checksums } = this.parts;
    const record = this.#all.get(id);
    await folder.remove(id);
    this.#all.delete(id);
    await images.release(checkpointHolder(id));
    await snapshots.need(checkpointHolder(id), []);
    for (const gone of record ? snapshotsOf(record) : []) checksums.forget(snapshots.folderOf(gone));
  }
}

/** What is restored of a checkpoint. */
export function pointFor({ point }: CheckpointRecord, memory: boolean): CheckpointRecord['point'] {
  const { memory: saved, ...disk } = point;
  return memory && saved !== undefined ? { ...disk, memory: saved } : disk;
}

/** Who made a memory, in words. */
export function nameOf({ name, version, accelerator }: DriverInfo): string {
  return `${name === 'qemu' ? 'QEMU' : name} ${version} with ${accelerator}`;
}
