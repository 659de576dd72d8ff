/**
 * Puts the disk of a sandbox above one layer in place of several that hold the same. Called by `sandbox.ts` when the node has
 * merged them.
 *
 * If we die on the way, the record names the layers of before, or the new one; both are there, and hold the same as what a
 * machine stands on: it is put right by the next merge, or by its next start.
 */
import type { Machine } from '@sandlot/vmm';
import { withMerged } from '../snapshots/merge-plan.js';
import { neededSnapshots } from './record.js';
import type { RecordOwner } from './record-progress.js';
import type { StartParts } from './start-parts.js';

/**
 * Replaces.
 * @param machine its machine, if it has one
 * @param isPresent whether that is still its machine, and nobody has ended it
 */
export async function replaceLayers(
  machine: Machine | undefined,
  isPresent: () => boolean,
  { record, save }: RecordOwner,
  { snapshots }: Pick<StartParts, 'snapshots'>,
  run: readonly string[],
  merged: string,
): Promise<void> {
  const layers = withMerged(record.layers ?? [], run, merged);
  if (!layers) return;
  const { sandboxId } = record.spec;
  const { whole, disks } = neededSnapshots(record);
  await snapshots.need(sandboxId, { whole, disks: [...disks, merged] });
  if (machine) {
    await machine.snapshotting?.restack(layers.map((id) => snapshots.diskOf(id)));
    // It has ended meanwhile: what the record named is gone, and is not to come back.
    if (!isPresent()) return;
    record.machine = machine.handle;
  }
  record.layers = layers;
  // What it names must outlive a loss of power only where no machine would end by that.
  await save(machine === undefined);
  await snapshots.need(sandboxId, neededSnapshots(record));
}
