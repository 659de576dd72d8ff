/**
 * Restores a machine of a sandbox, and connects to it: in its folder, in its network, with its rights, above its layers, under its
 * CPU limit. Every machine is made so: by a start (`boot-machine.ts`), a copy, a resume and a rollback.
 */
import { mkdir } from 'node:fs/promises';
import type { NodeSandboxSpec } from '@sandlot/protocol';
import type { Machine, RestoreRequest, RunAs } from '@sandlot/vmm';
import { GuestClient } from '../guest/guest-client.js';
import type { SandboxNetwork } from '../network/network.js';
import type { SnapshotStore } from '../snapshots/snapshot-store.js';
import type { SandboxRecord } from './record.js';
import type { StartParts } from './start-parts.js';
import type { UndoStack } from './undo-stack.js';

/** What the machine is made of. */
export interface MachineOrder extends Pick<RestoreRequest, 'from' | 'beforeRun'> {
  spec: NodeSandboxSpec;
  network: SandboxNetwork;
  disk: Omit<RestoreRequest['disk'], 'frozen'>;
  /** Snapshots that it reads: its memory's, and those whose disks lie below its own. */
  reads: Pick<SandboxRecord, 'memory' | 'layers'>;
}

/** Restores; `undo` ends it. */
export async function restoreMachine(
  { spec, from, network, disk, reads, beforeRun }: MachineOrder,
  parts: StartParts,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<Machine> {
  const folder = parts.records.machineFolderOf(spec.sandboxId);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const runAs = rightsOf(network, reads, parts.snapshots);
  const frozen = (reads.layers ?? []).map((id) => parts.snapshots.diskOf(id));
  const machine = await parts.driver.restore(
    {
      id: spec.sandboxId,
      folder,
      from,
      disk: { ...disk, frozen },
      network: network.machine,
      ...(runAs ? { runAs } : {}),
      ...(beforeRun ? { beforeRun } : {}),
    },
    signal,
  );
  undo.push('machine', () => machine.end());
  return machine;
}

/** Limits its processor time and makes the client of its guest; `warn` is told where there are no limits. */
export async function limitAndConnect(
  machine: Machine,
  { sandboxId, cpuLimit }: NodeSandboxSpec,
  parts: StartParts,
  undo: UndoStack,
  warn: (message: string) => void,
): Promise<GuestClient> {
  if (cpuLimit > 0) {
    undo.push('cpu limit', () => parts.cpuLimits.remove(sandboxId));
    const warning = await parts.cpuLimits.apply(sandboxId, machine.handle.pid, cpuLimit);
    if (warning) warn(warning);
  }
  const guest = new GuestClient(machine.ports);
  undo.push('guest connection', async () => guest.close());
  return guest;
}

/** As whom its process runs, and which snapshots it may read; undefined where all machines are the node agent's own user. */
function rightsOf(
  { runAs }: Pick<SandboxNetwork, 'runAs'>,
  { memory, layers = [] }: MachineOrder['reads'],
  snapshots: Pick<SnapshotStore, 'groupOf'>,
): RunAs | undefined {
  if (!runAs) return undefined;
  const ids = new Set([...(memory === undefined ? [] : [memory]), ...layers]);
  const groups = [...ids].map((id) => snapshots.groupOf(id)).filter((gid) => gid !== undefined);
  return groups.length === 0 ? runAs : { ...runAs, groups };
}
