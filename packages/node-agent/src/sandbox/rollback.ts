/**
 * The steps of a rollback: the record says where to, the old machine ends, its disk goes, a new machine goes on from the
 * point or boots with its disk. Owned by `Sandbox`. What the point is made of was compared before.
 *
 * | If we die | the next node agent |
 * |---|---|
 * | before the record says `rollback` | finds a running or paused sandbox, as if nobody had asked |
 * | before it says nothing of it any more | ends whatever machine there is, and begins anew |
 * | after that (memory: before the new machine's processors start; disk: when commands work in it) | finds a machine that is being resumed, or runs |
 */
import { rm } from 'node:fs/promises';
import { GuestRebootedError } from '../guest/channel.js';
import type { SandboxNetwork } from '../network/network.js';
import { bootAgain } from './boot-machine.js';
import { stateOf } from './copies.js';
import type { PausesHost } from './pauses.js';
import { neededSnapshots, type RestorePoint } from './record.js';
import { rebootProgress } from './record-progress.js';
import { restoreMachine } from './restore-machine.js';
import { takeUpMachine } from './resume-machine.js';
import type { StartedParts } from './start-parts.js';

/** What the sandbox does for its rollbacks. */
export interface RollbackHost extends PausesHost {
  /** Takes a new network with the policy in force, and gives the old one up: connections of the old machine end with it. */
  renewNetwork(): Promise<SandboxNetwork>;
  /** Sessions in another view than the default one are there again. */
  recall(sessions: readonly string[]): Promise<void>;
}

/** Puts it back where its record says. A failure ends it: what it was is gone. */
export async function rollBack(host: RollbackHost): Promise<void> {
  const { record, parts, signal } = host;
  const { rollback: point } = record;
  try {
    if (!point) throw new Error('the record does not say where to; a bug');
    host.change({ state: 'resuming' });
    await host.save(true);
    await parts.snapshots.need(record.spec.sandboxId, neededSnapshots(record));
    host.limitTime();
    await host.endMachine(
      new GuestRebootedError('The sandbox was rolled back to a checkpoint, and what ran in it ended.'),
    );
    signal.throwIfAborted();
    delete record.machine;
    const network = await host.renewNetwork();
    await rm(parts.records.machineFolderOf(record.spec.sandboxId), { recursive: true, force: true });
    for (const gone of ['memory', 'shell', 'startCommandRuns', 'rebooting'] as const) delete record[gone];
    delete record.report.exitCode;
    const { sessionsElsewhere = [], ...state } = stateOf(point);
    Object.assign(record, state);
    await host.recall(sessionsElsewhere);
    if (point.memory !== undefined && point.exitCode !== undefined) record.report.exitCode = point.exitCode;
    await host.save();
    // A disk alone boots as after a loss of power at its instant.
    const started =
      point.memory === undefined
        ? await bootAgain(
            record,
            { network, diskKept: false },
            parts,
            rebootProgress(host),
            host.machineUndo,
            signal,
          )
        : await parts.restores.run(signal, () => goOnFrom(point, host, network));
    signal.throwIfAborted();
    delete record.rollback;
    delete record.networkIsNew;
    host.run(started);
    // It runs, and is not to end for want of room: our next start takes up what the record says of it.
    await host
      .save()
      .catch((error: unknown) => host.log.error({ err: error }, 'a record could not be written'));
    await parts.snapshots.need(record.spec.sandboxId, neededSnapshots(record));
  } catch (error) {
    // Ended by a delete, or let go of: our next start begins it again from its record.
    if (!host.isOurs()) return;
    host.log.warn({ err: error }, 'rollback failed');
    await host.fail(error);
  }
}

/** Memory, processes and disk of the point, at its own pace from there. */
async function goOnFrom(
  point: RestorePoint,
  { record, parts, machineUndo, signal, save }: RollbackHost,
  network: SandboxNetwork,
): Promise<StartedParts> {
  const { spec, memory } = record;
  const from = memory === undefined ? undefined : await parts.snapshots.read(memory);
  if (!from) throw new Error('what was saved of its memory is missing or damaged');
  // In a point of its own it is itself.
  if (point.sandboxId !== spec.sandboxId) record.isAnother = true;
  const machine = await restoreMachine(
    {
      spec,
      from,
      network,
      disk: { backingPath: point.boot.rootfsPath, sizeBytes: point.boot.diskBytes },
      reads: record,
      beforeRun: async (handle) => {
        record.machine = handle;
        delete record.rollback;
        try {
          await save(true);
        } catch (error) {
          delete record.machine;
          record.rollback = point;
          throw error;
        }
      },
    },
    parts,
    machineUndo,
    signal,
  );
  return takeUpMachine(machine, network, record, parts, machineUndo, signal);
}
