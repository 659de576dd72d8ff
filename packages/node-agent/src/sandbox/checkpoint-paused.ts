/**
 * A checkpoint of a paused sandbox, made of the files that its pause has left, without a machine: its memory as it lies there, and its disk,
 * which becomes a layer of its own disk. Called by `sandbox.ts`.
 *
 * If we die before the record has the layer, nothing has changed. After that the two disks may be one file by two names, which
 * {@link freezePausedDisk} takes further before a resume; the checkpoint is there when it has a record of its own.
 */
import { VmmError } from '@sandlot/vmm';
import { checkpointHolder } from '../checkpoints/checkpoint-store.js';
import { pointOf } from './copies.js';
import type { CheckpointOrder, SavedCheckpoint } from './make-checkpoint.js';
import { neededSnapshots } from './record.js';
import type { RecordOwner } from './record-progress.js';
import { requireRoom } from './save-for-copies.js';
import type { StartParts } from './start-parts.js';

type PausedParts = Pick<StartParts, 'driver' | 'snapshots' | 'records'>;

/** Makes it. Its snapshots are kept in its name from then on; after a throw that is the caller's to take back. The sandbox is paused as before. */
export async function checkpointPaused(
  owner: RecordOwner,
  parts: PausedParts,
  { id, memory, fingerprint, by }: CheckpointOrder,
): Promise<SavedCheckpoint> {
  const { record } = owner;
  const { snapshots } = parts;
  const snapshotId = pauseOf(owner);
  const snapshot = memory ? await snapshots.read(snapshotId) : undefined;
  if (memory && !snapshot)
    throw new VmmError('save-failed', 'what was saved of its memory is missing or damaged');
  await requireRoom(snapshots.root);
  const whole = memory ? [snapshotId] : [];
  await snapshots.need(checkpointHolder(id), { whole, disks: [...(record.layers ?? []), snapshotId] });
  await freezePausedDisk(owner, parts);
  const made = snapshot && {
    shape: snapshot.shape,
    // Of the machine that was paused: there may be another QEMU by now.
    fingerprint: snapshot.snapshotFingerprint,
    by: snapshot.snapshotFingerprint === fingerprint ? by : 'another version, accelerator or processor',
  };
  return {
    id,
    sandboxId: record.spec.sandboxId,
    createdAtUnixMs: Date.now(),
    consistency: 'crash',
    ...(memory
      ? {}
      : { note: 'it was paused: what its guest had not written to its disk by then is in its memory alone' }),
    point: pointOf(record, memory ? snapshotId : undefined),
    ...(made ? { made } : {}),
  };
}

/** The disk of a paused sandbox becomes that of its pause's snapshot, and a layer of an empty one above it. Nothing happens when it is that already. */
export async function freezePausedDisk(owner: RecordOwner, parts: PausedParts): Promise<void> {
  const { record, save } = owner;
  const { driver, snapshots, records } = parts;
  const { sandboxId } = record.spec;
  const id = pauseOf(owner);
  const readableBy = snapshots.groupOf(id);
  if (!driver.freezeDisk || !record.boot)
    throw new VmmError('save-failed', 'a paused machine of this driver cannot be saved again');
  await driver.freezeDisk({
    machineFolder: records.machineFolderOf(sandboxId),
    folder: snapshots.folderOf(id),
    sizeBytes: record.boot.diskBytes,
    ...(readableBy === undefined ? {} : { readableBy }),
    beforeSwitch: async () => {
      const { layers = [] } = record;
      if (layers.includes(id)) return;
      record.layers = [...layers, id];
      try {
        await save(true);
      } catch (error) {
        record.layers = layers;
        throw error;
      }
    },
  });
  await snapshots.need(sandboxId, neededSnapshots(record));
}

/** Whether its disk became a layer while it was paused, or was about to. */
export function isPausedDiskFrozen({
  record: { memory, layers = [] },
}: Pick<RecordOwner, 'record'>): boolean {
  return memory !== undefined && layers.includes(memory);
}

function pauseOf({ record: { memory } }: Pick<RecordOwner, 'record'>): string {
  if (memory === undefined) throw new VmmError('save-failed', 'its record names no memory; a bug');
  return memory;
}
