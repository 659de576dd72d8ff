/**
 * From a snapshot to a machine that runs its sandbox again: restore on the sandbox's own disk, time and randomness set
 * before its first answer. Called by `sandbox.ts` for a resume.
 *
 * If we die before the machine is in the record, nothing has run: the resume begins anew, and whatever process there is
 * is ended as nobody's. After that the machine is the sandbox's, and only has to be told the time.
 */
import type { Machine, Snapshot } from '@sandlot/vmm';
import type { SandboxNetwork } from '../network/network.js';
import { applyFixups, identityOf } from './apply-fixups.js';
import type { SandboxRecord } from './record.js';
import type { RecordOwner } from './record-progress.js';
import { limitAndConnect, restoreMachine } from './restore-machine.js';
import type { StartedParts, StartParts } from './start-parts.js';
import type { UndoStack } from './undo-stack.js';
import { whileItLives } from './while-it-lives.js';

/** What a resume is made of. */
export interface ResumeOrder {
  snapshot: Snapshot;
  network: SandboxNetwork;
}

/** Makes the machine. Everything it makes is undone by `undo`, also after a throw. */
export async function resumeMachine(
  { snapshot, network }: ResumeOrder,
  { record, save }: RecordOwner,
  parts: StartParts,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<Machine> {
  return restoreMachine(
    {
      spec: record.spec,
      from: snapshot,
      network,
      // What it was saved with, but for layers: some may have been merged since.
      disk: { ...snapshot.disk, kept: true },
      reads: record,
      beforeRun: async (handle) => {
        record.machine = handle;
        try {
          // For good: after a loss of power the memory that was saved must not meet a disk that has gone on.
          await save(true);
        } catch (error) {
          delete record.machine;
          throw error;
        }
      },
    },
    parts,
    undo,
    signal,
  );
}

/** Takes up a machine that was restored: limits, connection, time. */
export async function takeUpMachine(
  machine: Machine,
  network: SandboxNetwork,
  record: SandboxRecord,
  parts: StartParts,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<StartedParts> {
  const guest = await limitAndConnect(machine, record.spec, parts, undo, () => undefined);
  const identity = record.isAnother ? identityOf(record) : undefined;
  await whileItLives(machine, () => applyFixups(guest, identity, signal, record.networkIsNew));
  delete record.networkIsNew;
  delete record.isAnother;
  return { machine, network, guest };
}
