/** Compares the files that a sandbox is to begin with, or to go back to, with their checksums. Used before every restore from a checkpoint. */
import type { RestorePoint } from '../sandbox/record.js';
import type { Checksums } from '../snapshots/checksums.js';
import type { SnapshotStore } from '../snapshots/snapshot-store.js';

/** @throws DamagedFileError */
export async function verifyPoint(
  { memory, layers = [] }: Partial<Pick<RestorePoint, 'memory' | 'layers'>>,
  { snapshots, checksums }: { snapshots: Pick<SnapshotStore, 'folderOf'>; checksums: Checksums },
  signal: AbortSignal,
): Promise<void> {
  if (memory !== undefined) await checksums.verify(snapshots.folderOf(memory), 'memory', signal);
  for (const id of layers) await checksums.verify(snapshots.folderOf(id), 'disk', signal);
}
