/**
 * What a node keeps of each checkpoint on disk: a file each, whole or absent. Only `checkpoint-store.ts` writes them. They
 * outlive the sandbox, the node agent and the host.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { CheckpointConsistency } from '@sandlot/protocol';
import { type Shape, syncToDisk } from '@sandlot/vmm';
import { RecordFormError, type RestorePoint } from '../sandbox/record.js';
import type { SnapshotNeeds } from '../snapshots/snapshot-store.js';

/** Everything of a checkpoint but its files. */
export interface CheckpointRecord {
  /** Raised when the form changes. */
  form: 1;
  id: string;
  sandboxId: string;
  createdAtUnixMs: number;
  consistency: CheckpointConsistency;
  /** Why file systems were not frozen. */
  note?: string;
  /** All is on the disk for good, with checksums. */
  durable: boolean;
  /** What a sandbox begins with that goes on from it; `memory` only where it has some. */
  point: RestorePoint;
  /** Of the machine whose memory it has; it goes on only where these are the same. */
  made?: { shape: Shape; fingerprint: string; by: string };
}

/** The same, as it is needed. */
export function checkpointNeeds({
  point: { memory, layers },
}: Pick<CheckpointRecord, 'point'>): SnapshotNeeds {
  return { whole: memory === undefined ? [] : [memory], disks: layers };
}

/** Ids of all snapshots that it is made of. */
export function snapshotsOf({ point: { memory, layers } }: Pick<CheckpointRecord, 'point'>): string[] {
  return [...new Set([...layers, ...(memory === undefined ? [] : [memory])])];
}

/** The folder of all checkpoints of a node. */
export class CheckpointFolder {
  constructor(readonly root: string) {}

  /** Makes it if need be, and reads all. Throws {@link RecordFormError}. */
  async readAll(): Promise<CheckpointRecord[]> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    const records: CheckpointRecord[] = [];
    for (const name of await readdir(this.root)) {
      const path = join(this.root, name);
      if (!name.endsWith('.json')) {
        await rm(path, { force: true });
        continue;
      }
      const record = JSON.parse(await readFile(path, 'utf8')) as CheckpointRecord;
      if (record.form !== 1)
        throw new RecordFormError(
          `${path} has form ${record.form}, which this version of Sandlot cannot read: a newer one wrote it. Nothing was changed. Start the newer version.`,
        );
      records.push(record);
    }
    return records;
  }

  /** Writes one, for good: it reaches the host's disk before this resolves. */
  async write(record: CheckpointRecord): Promise<void> {
    const path = this.#pathOf(record.id);
    await writeFile(`${path}.new`, JSON.stringify(record), { mode: 0o600, flush: true });
    await rename(`${path}.new`, path);
    await syncToDisk(this.root);
  }

  async remove(id: string): Promise<void> {
    for (const path of [this.#pathOf(id), `${this.#pathOf(id)}.new`]) await rm(path, { force: true });
    await syncToDisk(this.root);
  }

  #pathOf(id: string): string {
    return join(this.root, `${id}.json`);
  }
}
