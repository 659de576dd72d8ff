/** What the saves for a pause and for copies have in common: `pause-machine.ts`, `save-for-copies.ts`. */
import {
  type Machine,
  type MachineSnapshotting,
  type SnapshotRequest,
  type SnapshotTimings,
  VmmError,
} from '@sandlot/vmm';
import type { StartParts } from './start-parts.js';

/** How a machine is saved. Throws VmmError `save-failed` for one that cannot be. */
export function snapshottingOf({ snapshotting }: Machine): MachineSnapshotting {
  if (snapshotting) return snapshotting;
  throw new VmmError(
    'save-failed',
    'its machine was started by an earlier version of Sandlot and cannot be saved',
  );
}

/** Saves into the folder of the snapshot with this id, which is made. Throws VmmError. */
export async function saveInto(
  id: string,
  snapshotting: MachineSnapshotting,
  after: SnapshotRequest['after'],
  { snapshots }: Pick<StartParts, 'snapshots'>,
  signal: AbortSignal,
): Promise<SnapshotTimings> {
  const folder = await snapshots.makeFolder(id);
  const readableBy = snapshots.groupOf(id);
  const request = { folder, after, ...(readableBy === undefined ? {} : { readableBy }) };
  return (await snapshotting.save(request, signal)).timings;
}
