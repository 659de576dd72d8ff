/**
 * Saves a running sandbox that goes on, with a disk above the one that was saved: for copies of it, and for checkpoints. Called by
 * `sandbox.ts`.
 *
 * If we die on the way, the machine runs or stands still, and its disk may stand above that of the snapshot already:
 * `settleSave` finds out which, and brings the record in line.
 */
import { statfs } from 'node:fs/promises';
import {
  type Machine,
  type MachineHandle,
  type MachineSnapshotting,
  type SnapshotTimings,
  snapshotPaths,
  VmmError,
} from '@sandlot/vmm';
import { neededSnapshots } from './record.js';
import type { RecordOwner } from './record-progress.js';
import { saveInto, snapshottingOf } from './save-machine.js';
import type { StartParts } from './start-parts.js';

const minFreeMiB = 64;

type SaveParts = Pick<StartParts, 'snapshots'>;

/** Who needs a snapshot until its copies are here to say that they do. */
export function copiesHolder(snapshotId: string): string {
  return `copies of ${snapshotId}`;
}

/** How it is saved. */
export interface SaveOrder {
  /** Who needs the new snapshot, and all below it, until the caller says otherwise. */
  holderOf(snapshotId: string): string;
  /** Saves into the snapshot of this id; what it resolves with is for the log. */
  save(
    snapshotId: string,
    snapshotting: MachineSnapshotting,
    signal: AbortSignal,
  ): Promise<Partial<SnapshotTimings>>;
}

/** Saves memory and disk of one instant, for copies. Resolves with the snapshot's id. As {@link saveAndGoOn}. */
export function saveForCopies(
  machine: Machine,
  owner: RecordOwner,
  parts: SaveParts,
  signal: AbortSignal,
): Promise<string> {
  const save: SaveOrder['save'] = (id, snapshotting, until) =>
    saveInto(id, snapshotting, 'go on', parts, until);
  return saveAndGoOn(machine, owner, parts, { holderOf: copiesHolder, save }, signal);
}

/**
 * Saves. Resolves with the snapshot's id, which is a layer of the sandbox's own disk from then on. On a throw the sandbox
 * runs as before.
 */
export async function saveAndGoOn(
  machine: Machine,
  owner: RecordOwner,
  parts: SaveParts,
  { holderOf, save: saveMachine }: SaveOrder,
  signal: AbortSignal,
): Promise<string> {
  const { record, save, log } = owner;
  const { snapshots } = parts;
  const snapshotting = snapshottingOf(machine);
  await requireRoom(snapshots.root);
  const id = snapshots.newId();
  record.saving = id;
  try {
    try {
      await snapshots.need(record.spec.sandboxId, neededSnapshots(record));
      await save();
      const timings = await saveMachine(id, snapshotting, signal);
      await snapshots.need(holderOf(id), { whole: [id], disks: record.layers ?? [] });
      log.info({ timings }, 'saved, and goes on');
    } finally {
      // Also after a failure: it may have come after the switch to the new disk.
      if (await snapshotting.isDiskTaken(snapshots.folderOf(id)))
        record.layers = [...(record.layers ?? []), id];
      delete record.saving;
      record.machine = machine.handle;
      // First the files: it may be for want of room that we are here.
      await snapshots.need(record.spec.sandboxId, neededSnapshots(record));
      await save();
    }
  } catch (error) {
    await snapshots.need(holderOf(id), { whole: [], disks: [] });
    throw error;
  }
  return id;
}

/** On a new disk a guest needs room for whatever it writes, also over what it has: on a full host it would be left with errors. */
export async function requireRoom(folder: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  const freeMiB = Math.floor((bavail * bsize) / 2 ** 20);
  if (freeMiB < minFreeMiB)
    throw new VmmError(
      'no-space',
      `the disk of the node has ${freeMiB} MiB free, and at least ${minFreeMiB} MiB are needed to save a sandbox that goes on; make room first`,
    );
}

/**
 * Brings the record in line with a machine whose save was cut off by our end. Resolves with what the machine's handle is then,
 * if that has changed: adopt it anew by it.
 */
export async function settleSave(
  machine: Machine,
  { record }: Pick<RecordOwner, 'record'>,
  { snapshots }: SaveParts,
): Promise<MachineHandle | undefined> {
  const { saving: id } = record;
  const { handle } = machine;
  if (
    id === undefined ||
    !handle.origin ||
    !(await machine.snapshotting?.isDiskTaken(snapshots.folderOf(id)))
  )
    return undefined;
  record.layers = [...(record.layers ?? []), id];
  const { disk } = handle.origin;
  const frozen = [...disk.frozen, snapshotPaths(snapshots.folderOf(id)).disk];
  record.machine = { ...handle, origin: { ...handle.origin, disk: { ...disk, frozen } } };
  return record.machine;
}
