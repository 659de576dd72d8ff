/**
 * Makes the disk that an ended machine has left in its folder a layer: it becomes the disk of a snapshot, and an empty one
 * above it takes its place. Called by the node agent, through the driver, for a checkpoint of a paused sandbox.
 *
 * If we die, the two names are of one file, or of two: the first is taken further by the next call, the second is done.
 */
import { link, lstat, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type FreezeDiskRequest, VmmError } from '../driver.js';
import { snapshotPaths } from '../snapshot-files.js';
import { syncToDisk } from '../sync-to-disk.js';
import { qemuFiles } from './launch.js';
import { createOverlay } from './overlay.js';
import { asSaveError, share } from './save-snapshot.js';

/** A name that no machine gives to a disk; what is left of it does no harm, and is removed by the next call. */
const passingName = 'above.qcow2';

/** See {@link VmmDriver.freezeDisk}. */
export async function freezeDisk({
  machineFolder,
  folder,
  sizeBytes,
  readableBy,
  beforeSwitch,
}: FreezeDiskRequest): Promise<void> {
  try {
    if (!(await isDiskTaken(folder, machineFolder)))
      await putBelow(folder, machineFolder, sizeBytes, beforeSwitch);
    await share(readableBy === undefined ? { folder } : { folder, readableBy });
  } catch (error) {
    throw asSaveError(error);
  }
}

async function putBelow(
  folder: string,
  machineFolder: string,
  sizeBytes: number,
  beforeSwitch: FreezeDiskRequest['beforeSwitch'],
): Promise<void> {
  const { disk } = snapshotPaths(folder);
  const { overlay } = qemuFiles(machineFolder);
  const next = join(machineFolder, passingName);
  let isRecorded = false;
  try {
    await rm(next, { force: true });
    await createOverlay(next, { backingPath: disk, backingFormat: 'qcow2', sizeBytes });
    await syncToDisk(next);
    // A machine that was broken into could write in its folder.
    if (!(await lstat(overlay)).isFile()) throw new VmmError('save-failed', `${overlay} is not a file`);
    await link(overlay, disk).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    await syncToDisk(folder);
    await beforeSwitch?.();
    isRecorded = true;
    await rename(next, overlay);
    await syncToDisk(machineFolder);
  } catch (error) {
    await rm(next, { force: true }).catch(() => undefined);
    if (!isRecorded) await rm(disk, { force: true }).catch(() => undefined);
    throw error;
  }
}

/** Whether a snapshot has the disk that was a machine's, and the machine one above it: both are there, and not one file by two names. */
export async function isDiskTaken(folder: string, machineFolder: string): Promise<boolean> {
  const paths = [snapshotPaths(folder).disk, qemuFiles(machineFolder).overlay];
  const [one, two] = await Promise.all(paths.map((path) => stat(path).catch(() => undefined)));
  return one !== undefined && two !== undefined && one.ino !== two.ino;
}
