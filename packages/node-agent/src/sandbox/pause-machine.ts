/**
 * The steps of a pause: memory, devices and disk of a running sandbox are saved, its guest stands still from then on, and
 * the record says that it is paused. Called by `sandbox.ts`, which then ends the machine, or lets it go on after a throw.
 *
 * | If we die | the next node agent finds |
 * |---|---|
 * | before the record says `pausing` | a running sandbox |
 * | before it says `paused` | a machine that stands still or runs: it goes on |
 * | after that | a paused sandbox, and perhaps a machine that stands still: it is ended |
 */
import type { Machine } from '@sandlot/vmm';
import { neededSnapshots } from './record.js';
import type { RecordOwner } from './record-progress.js';
import { saveInto, snapshottingOf } from './save-machine.js';
import type { StartParts } from './start-parts.js';

/** Pauses. On a throw the record names the attempt in `saving`; `undoPause` takes it back. */
export async function pauseMachine(
  machine: Machine,
  { record, change, save, log }: RecordOwner,
  parts: Pick<StartParts, 'snapshots'>,
  signal: AbortSignal,
): Promise<void> {
  const { snapshots } = parts;
  const snapshotting = snapshottingOf(machine);
  const id = snapshots.newId();
  record.saving = id;
  await snapshots.need(record.spec.sandboxId, neededSnapshots(record));
  change({ state: 'pausing' });
  await save();
  const timings = await saveInto(id, snapshotting, 'stand still', parts, signal);
  log.info({ timings }, 'saved for a pause');
  signal.throwIfAborted();
  const { memory } = record;
  delete record.saving;
  record.memory = id;
  // Told only when the disk says so: until then our next start believes that it runs.
  record.report.state = 'paused';
  try {
    await save(true);
  } catch (error) {
    record.report.state = 'pausing';
    record.saving = id;
    if (memory === undefined) delete record.memory;
    else record.memory = memory;
    throw error;
  }
  change({});
}

/** Lets the machine go on after a pause that failed, or was cut off by our end. */
export async function undoPause(
  machine: Machine,
  { record, change, save }: RecordOwner,
  { snapshots }: Pick<StartParts, 'snapshots'>,
): Promise<void> {
  delete record.saving;
  try {
    await machine.pausing?.resume();
  } finally {
    change({ state: 'running' });
    // First the files: it may be for want of room that we are here.
    await snapshots.need(record.spec.sandboxId, neededSnapshots(record));
    await save();
  }
}
