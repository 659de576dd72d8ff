/**
 * What a new node agent finds of a sandbox that an earlier one has left: its machine and network, by what the record names.
 * Called by `Sandbox`, which goes on from there.
 */
import { rm } from 'node:fs/promises';
import type { Machine, MachineEnd, MachineHandle } from '@sandlot/vmm';
import { GuestClient } from '../guest/guest-client.js';
import type { SandboxNetwork } from '../network/network.js';
import { causeOfMachineEnd, type EndCause } from './end-reasons.js';
import { undoPause } from './pause-machine.js';
import type { SandboxRecord } from './record.js';
import type { RecordOwner } from './record-progress.js';
import { settleSave } from './save-for-copies.js';
import type { StartedParts, StartParts } from './start-parts.js';
import type { UndoStack } from './undo-stack.js';

/** The sandbox; what is found is put on its stacks. */
export interface AdoptionHost extends RecordOwner {
  readonly parts: StartParts;
  readonly undo: UndoStack;
  readonly machineUndo: UndoStack;
}

/** What has become of a sandbox that ran: it has ended, or goes on from one of three places. */
export type FoundRunning =
  | { cause: EndCause }
  | { is: 'running'; network: SandboxNetwork; started: StartedParts }
  | { is: 'rebooting'; network: SandboxNetwork }
  | { is: 'resuming'; network: SandboxNetwork; machine: Machine };

/** Looks for one whose record names a machine. */
export async function findRunning(host: AdoptionHost): Promise<FoundRunning> {
  const { record, parts, machineUndo, log } = host;
  const { machine: handle } = record;
  if (!handle || !record.network) return ended('The record of the sandbox names no machine.');
  const network = await holdAll(host);
  const found = await findMachine(handle, host);
  const isAlive = 'ports' in found;
  // Of a reboot that was under way the machine may be the old one, or a new one that is not ready.
  if (!isAlive && !record.rebooting) return { cause: causeOfMachineEnd(found) };
  if (isAlive) machineUndo.push('machine', () => found.end());
  machineUndo.push('cpu limit', () => parts.cpuLimits.remove(record.spec.sandboxId));
  if (!network) return ended('The network of the sandbox was removed while the node agent was away.');
  if (!isAlive || record.rebooting) return { is: 'rebooting', network };
  if (record.report.state === 'resuming') return { is: 'resuming', network, machine: found };
  // Our predecessor was saving it, and the machine may stand still.
  const wasSaved = record.saving !== undefined;
  if (wasSaved) {
    await undoPause(found, host, parts).catch((error: unknown) =>
      log.error({ err: error }, 'a save that was cut off could not be taken back whole'),
    );
  }
  const guest = new GuestClient(found.ports);
  machineUndo.push('guest connection', async () => guest.close());
  // It may have been asked to hold still for a checkpoint.
  if (wasSaved) void guest.thaw().catch(() => undefined);
  return { is: 'running', network, started: { machine: found, network, guest } };
}

/** Looks for one that needs no machine: what there is of one is ended. Answers its network, if that is still there. */
export async function findPaused(host: AdoptionHost): Promise<SandboxNetwork | undefined> {
  const { record, parts } = host;
  const network = await holdAll(host);
  // It stands still since it was saved.
  if (record.machine) await endMachine(record.machine, parts);
  delete record.machine;
  return network;
}

/** Undoes what an interrupted start has made, so that it can begin again. */
export async function undoInterruptedStart(record: SandboxRecord, parts: StartParts): Promise<void> {
  const { machine, network } = record;
  if (machine) await endMachine(machine, parts);
  if (network) await (await parts.networks.adopt(network))?.release();
  await rm(parts.records.machineFolderOf(record.spec.sandboxId), { recursive: true, force: true });
  delete record.machine;
  delete record.network;
  // What a copy begins with was not made by its start.
  if (record.copy) return;
  delete record.startCommandRuns;
  if (!record.copyOfDisk) delete record.boot;
}

/** What its end has to give back, whatever runs. */
async function holdAll({ record, parts, undo }: AdoptionHost): Promise<SandboxNetwork | undefined> {
  const { sandboxId } = record.spec;
  undo.push('image', () => parts.images.release(sandboxId));
  const network = record.network && (await parts.networks.adopt(record.network));
  if (network) undo.push('network', () => network.release());
  const folder = parts.records.machineFolderOf(sandboxId);
  undo.push('machine folder', () => rm(folder, { recursive: true, force: true }));
  return network;
}

/** The machine of before our restart, and what a save that was cut off has made of its disk. */
async function findMachine(handle: MachineHandle, host: AdoptionHost): Promise<Machine | MachineEnd> {
  const { driver } = host.parts;
  const found = await driver.adopt(handle);
  if (!('ports' in found)) return found;
  const moved = await settleSave(found, host, host.parts);
  if (!moved) return found;
  found.detach();
  return driver.adopt(moved);
}

async function endMachine(handle: MachineHandle, { driver }: StartParts): Promise<void> {
  const found = await driver.adopt(handle);
  if ('ports' in found) await found.end();
}

const ended = (message: string): FoundRunning => ({ cause: { reason: 'MACHINE_ENDED', message } });
