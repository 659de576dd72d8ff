/** As whom a machine's process runs, and which snapshots it may read. Pure. Used by every restore. */
import type { RunAs } from '@sandlot/vmm';
import type { SandboxNetwork } from '../network/network.js';
import type { SnapshotStore } from '../snapshots/snapshot-store.js';
import type { SandboxRecord } from './record.js';

/** Undefined where all machines are the node agent's own user. */
export function machineRights(
  { runAs }: Pick<SandboxNetwork, 'runAs'>,
  { memory, layers = [] }: Pick<SandboxRecord, 'memory' | 'layers'>,
  snapshots: Pick<SnapshotStore, 'groupOf'>,
): RunAs | undefined {
  if (!runAs) return undefined;
  const ids = new Set([...(memory === undefined ? [] : [memory]), ...layers]);
  const groups = [...ids].map((id) => snapshots.groupOf(id)).filter((gid) => gid !== undefined);
  return groups.length === 0 ? runAs : { ...runAs, groups };
}
