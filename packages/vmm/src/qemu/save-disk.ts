/**
 * Saves the disk of a running machine, and nothing else: the machine writes to a new one from then on. Called by `QemuMachine`.
 * What the disk is of (file systems frozen or not) is the caller's business. If we die, see `save-snapshot.ts`.
 */
import { link } from 'node:fs/promises';
import type { MachineHandle, MachineOrigin, SavedDisk, SnapshotRequest } from '../driver.js';
import { snapshotPaths } from '../snapshot-files.js';
import { qemuFiles } from './launch.js';
import type { QmpClient } from './qmp-client.js';
import { addNextDisk, asSaveError, type NextDisk, nameDisk, share, topNode, undo } from './save-snapshot.js';

/** Saves. On a throw the machine runs as before; the folder is empty, unless its disk is below the machine's by then. */
export async function saveDisk(
  { handle, qmp }: { handle: MachineHandle & { origin: MachineOrigin }; qmp: QmpClient },
  request: Omit<SnapshotRequest, 'after'>,
  signal: AbortSignal,
): Promise<SavedDisk> {
  const begin = performance.now();
  const { disk } = handle.origin;
  const paths = snapshotPaths(request.folder);
  let next: NextDisk | undefined;
  try {
    signal.throwIfAborted();
    const top = await topNode(qmp);
    next = await addNextDisk(handle, qmp);
    await link(qemuFiles(handle.folder).overlay, paths.disk);
    signal.throwIfAborted();
    // Not raced: it drains what is under way, switches, and goes on.
    await qmp.execute('blockdev-snapshot', { node: top, overlay: next.node });
    await nameDisk(handle.folder, next.path);
    await share(request);
    const saved = { ...disk, frozen: [...disk.frozen, paths.disk] };
    return { folder: request.folder, disk: saved, totalMs: performance.now() - begin };
  } catch (error) {
    await undo(handle, qmp, request.folder, next, false);
    throw asSaveError(signal.aborted ? signal.reason : error);
  }
}
