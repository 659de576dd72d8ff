/**
 * Saves a running machine: memory, device state and disk of one instant. Called by `QemuMachine`.
 *
 * The memory that the machine began as never changes, so it is copied while the guest runs; the guest stands still only
 * for the device state, the pages that are its own, and the switch to a new disk. What can fail is done before that
 * switch: a failure undoes all and lets the guest go on. If we die, `settleDisk` makes the names in the machine's folder
 * true again when the machine is adopted.
 */
import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, chown, copyFile, type FileHandle, link, open, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import {
  type MachineHandle,
  type MachineOrigin,
  type SavedSnapshot,
  type Snapshot,
  type SnapshotRequest,
  VmmError,
} from '../driver.js';
import { runProgram } from '../process/run-program.js';
import { completeSnapshot, prepareDescription, snapshotPaths } from '../snapshot-files.js';
import { syncToDisk } from '../sync-to-disk.js';
import { emptyFolder } from '../template-files.js';
import { overlayNode } from './argv.js';
import { copyPrivatePages } from './guest-memory.js';
import { findHeldFile } from './held-file.js';
import { qemuFiles } from './launch.js';
import { createOverlay } from './overlay.js';
import { type QmpClient, QmpCommandError } from './qmp-client.js';

/** Device state of a machine is below a megabyte; a QEMU that was broken into must not fill the disk with it. */
const maxStateBytes = 64 * 1024 * 1024;
const copyTimeoutMs = 240_000;
const stateTimeoutMs = 30_000;

/** A disk that the machine is to go on with. */
export interface NextDisk {
  node: string;
  path: string;
}

/** Result of a save: the snapshot, and the layers below the machine's disk from now on. */
export interface SaveResult {
  snapshot: SavedSnapshot;
  origin: MachineOrigin;
}

/** Saves. On a throw the machine runs as before and the folder is empty. */
export async function saveSnapshot(
  { handle, qmp }: { handle: MachineHandle & { origin: MachineOrigin }; qmp: QmpClient },
  request: SnapshotRequest,
  signal: AbortSignal,
): Promise<SaveResult> {
  const begin = performance.now();
  const { origin } = handle;
  const paths = snapshotPaths(request.folder);
  const goesOn = request.after === 'go on';
  let stopped = false;
  let next: NextDisk | undefined;
  let memory: FileHandle | undefined;
  try {
    signal.throwIfAborted();
    const base = await copyBase(handle, paths, signal);
    memory = await open(paths.memory, 'r+');
    const top = await topNode(qmp);
    if (goesOn) {
      next = await addNextDisk(handle, qmp);
      await link(qemuFiles(handle.folder).overlay, paths.disk);
    }
    signal.throwIfAborted();
    // Not raced: what was begun here has an end, and until then nobody knows what there is to undo.
    stopped = true;
    await qmp.execute('stop');
    const stillFrom = performance.now();
    await saveDevices(handle, qmp, paths.state);
    const memoryBytes = origin.shape.memoryMiB * 1024 * 1024;
    const dirtyBytes = await copyPrivatePages(handle.pid, base, memoryBytes, memory, signal);
    const frozen = goesOn ? [...origin.disk.frozen, paths.disk] : origin.disk.frozen;
    const disk = { ...origin.disk, frozen };
    const { shape, networkKind, snapshotFingerprint } = origin;
    const snapshot: Snapshot = {
      folder: request.folder,
      ...{ shape, networkKind, snapshotFingerprint },
      disk,
    };
    await prepareDescription(snapshot, ['memory', 'state', 'modules.ext4']);
    if (next) {
      signal.throwIfAborted();
      await qmp.execute('blockdev-snapshot', { node: top, overlay: next.node });
      await qmp.execute('cont');
    } else await keepForGood(handle, request.folder, memory);
    const stillMs = performance.now() - stillFrom;
    if (next) await nameDisk(handle.folder, next.path);
    await share(request);
    await completeSnapshot(request.folder);
    if (!goesOn) await syncToDisk(request.folder);
    const timings = { stillMs, totalMs: performance.now() - begin, dirtyBytes };
    return { snapshot: { ...snapshot, timings }, origin: { ...origin, disk } };
  } catch (error) {
    await undo(handle, qmp, request.folder, next, stopped);
    throw asSaveError(signal.aborted ? signal.reason : error);
  } finally {
    await memory?.close();
  }
}

/** Resolves with the path by which the file below can be read. */
async function copyBase(
  { pid, origin }: { pid: number; origin: MachineOrigin },
  paths: ReturnType<typeof snapshotPaths>,
  signal: AbortSignal,
): Promise<string> {
  const from = await findHeldFile(pid, origin.memoryPath);
  // Shares the blocks where the file system can, and copies the holes as holes where it cannot.
  await runProgram(
    ['cp', '--reflink=auto', '--sparse=auto', '--no-preserve=all', from, paths.memory],
    copyTimeoutMs,
    signal,
  );
  await chmod(paths.memory, 0o600);
  const modules = await findHeldFile(pid, origin.modulesPath);
  try {
    await link(modules, paths.modules);
  } catch {
    // Another file system, or a file whose name is gone.
    await copyFile(modules, paths.modules, constants.COPYFILE_FICLONE);
    await chmod(paths.modules, 0o444);
  }
  return from;
}

/** Adds an empty disk above the machine's to the process; it is not used yet. */
export async function addNextDisk(
  { folder, origin }: { folder: string; origin: MachineOrigin },
  qmp: QmpClient,
): Promise<NextDisk> {
  const name = randomBytes(6).toString('hex');
  const next = { node: nodeOf(name), path: join(folder, `${nextPrefix}${name}.qcow2`) };
  const { overlay } = qemuFiles(folder);
  await createOverlay(next.path, {
    backingPath: overlay,
    backingFormat: 'qcow2',
    sizeBytes: origin.disk.sizeBytes,
  });
  await giveToOwnerOf(next.path, folder);
  await qmp.execute('blockdev-add', { ...overlayNode(next.path, next.node), backing: null });
  return next;
}

/**
 * Gives the disk that the machine writes to from now on the name of its disk. It keeps the one that QEMU knows it by: QEMU
 * opens it by that again, for reading alone, when the next one takes over; a disk of which it could not would stay locked.
 */
export async function nameDisk(folder: string, path: string): Promise<void> {
  const passing = join(folder, 'overlay.new');
  await rm(passing, { force: true });
  await link(path, passing);
  await rename(passing, qemuFiles(folder).overlay);
  for (const name of await nextNames(folder)) {
    const other = join(folder, name);
    if (other !== path) await rm(other, { force: true });
  }
}

const nextPrefix = 'next-';

/** Names of disks that were added to a running machine. */
async function nextNames(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => []);
  return names.filter((name) => /^next-[0-9a-f]{12}\.qcow2$/.test(name));
}

/** Removes the names of earlier processes: a new one knows its disk by the name that it is given. */
export async function forgetAddedDisks(folder: string): Promise<void> {
  for (const name of await nextNames(folder)) await rm(join(folder, name), { force: true });
}

function nodeOf(name: string): string {
  return `disk-${name}`;
}

async function giveToOwnerOf(path: string, folder: string): Promise<void> {
  const own = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    const { uid, gid } = await own.stat();
    if (uid !== process.getuid?.()) await chown(path, uid, gid);
  } finally {
    await own.close();
  }
}

/** The machine's identity can write only in its own folder, so the state passes through there; what it finds there is not trusted. */
async function saveDevices({ folder }: { folder: string }, qmp: QmpClient, statePath: string): Promise<void> {
  const passing = join(folder, 'state');
  await rm(passing, { force: true });
  // Not live: otherwise QEMU would give its disks up to the other side of a migration.
  await qmp.execute('xen-save-devices-state', { filename: passing, live: false }, stateTimeoutMs);
  const from = await open(passing, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const found = await from.stat();
    if (!found.isFile() || found.size > maxStateBytes)
      throw new VmmError('save-failed', `the device state is no file of at most ${maxStateBytes} bytes`);
    const to = await open(statePath, 'wx', 0o600);
    try {
      await to.writeFile(await from.readFile());
    } finally {
      await to.close();
    }
  } finally {
    await from.close();
    await rm(passing, { force: true });
  }
}

/** Nobody writes to the files any more; who may read them is said by the request. */
export async function share({
  folder,
  readableBy,
}: Pick<SnapshotRequest, 'folder' | 'readableBy'>): Promise<void> {
  const paths = snapshotPaths(folder);
  const mode = readableBy === undefined ? 0o400 : 0o440;
  for (const path of [paths.memory, paths.state, paths.disk]) {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch(ignoreMissing);
    if (!file) continue;
    try {
      if (!(await file.stat()).isFile()) throw new VmmError('save-failed', `${path} is not a file`);
      await file.chmod(mode);
      if (readableBy !== undefined) await file.chown(process.getuid!(), readableBy);
    } finally {
      await file.close();
    }
  }
  await chmod(folder, readableBy === undefined ? 0o700 : 0o710);
  if (readableBy !== undefined) await chown(folder, process.getuid!(), readableBy);
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/**
 * A paused sandbox outlives its host: everything reaches the platter before it is said to be saved, the disks below its
 * own included, which were left to the kernel when its copies were made.
 */
async function keepForGood(
  handle: MachineHandle & { origin: MachineOrigin },
  folder: string,
  memory: FileHandle,
): Promise<void> {
  await memory.datasync();
  const { state, modules, description } = snapshotPaths(folder);
  const { frozen } = handle.origin.disk;
  const own = [state, modules, `${description}.tmp`, qemuFiles(handle.folder).overlay];
  for (const path of [...own, ...frozen]) {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      await file.datasync();
    } finally {
      await file.close();
    }
  }
  for (const path of new Set([handle.folder, ...[folder, ...frozen].map((one) => dirname(one))]))
    await syncToDisk(path);
}

/** The node that the guest's disk is now: the only one that can be written. */
export async function topNode(qmp: QmpClient): Promise<string> {
  const devices = await qmp.execute<{ inserted?: { ro: boolean; 'node-name'?: string } }[]>('query-block');
  const node = devices.find(({ inserted }) => inserted && !inserted.ro)?.inserted?.['node-name'];
  if (node === undefined) throw new VmmError('save-failed', "QEMU does not name the machine's disk");
  return node;
}

/** Takes an attempt back: the machine runs on, with the disk that it has by then. */
export async function undo(
  handle: MachineHandle,
  qmp: QmpClient,
  folder: string,
  next: NextDisk | undefined,
  stopped: boolean,
): Promise<void> {
  // The machine may have ended, which is why we are here; then there is nothing to put back.
  const top = next && (await topNode(qmp).catch(() => undefined));
  if (next && top === next.node) {
    // Its disk is in the folder by now: that has to stay.
    await nameDisk(handle.folder, next.path).catch(() => undefined);
  } else {
    if (next) {
      await qmp.execute('blockdev-del', { 'node-name': next.node }).catch(() => undefined);
      await rm(next.path, { force: true });
      const { overlay } = qemuFiles(handle.folder);
      await chmod(overlay, 0o600).catch(() => undefined);
      await giveToOwnerOf(overlay, handle.folder).catch(() => undefined);
    }
    await emptyFolder(folder);
  }
  if (stopped) await qmp.execute('cont').catch(() => undefined);
}

/**
 * After a save that was cut off by our end: gives the disk that the machine writes to the name of its disk, and
 * removes one that it never came to.
 */
export async function settleDisk(handle: MachineHandle, qmp: QmpClient): Promise<void> {
  const names = await nextNames(handle.folder);
  if (names.length === 0) return;
  const top = await topNode(qmp);
  for (const name of names) {
    const path = join(handle.folder, name);
    const node = nodeOf(name.slice(nextPrefix.length, -'.qcow2'.length));
    if (top === node) await nameDisk(handle.folder, path);
    else {
      await qmp.execute('blockdev-del', { 'node-name': node }).catch((error: unknown) => {
        // It was cut off before QEMU knew of it, or it is below the machine's disk by now.
        if (!(error instanceof QmpCommandError)) throw error;
      });
      await rm(path, { force: true });
    }
  }
}

/** What went wrong with a save, as the contract names it. */
export function asSaveError(error: unknown): unknown {
  if (error instanceof VmmError && error.code !== 'start-failed') return error;
  const full =
    (error as NodeJS.ErrnoException).code === 'ENOSPC' ||
    /No space left on device/.test((error as Error).message);
  return new VmmError(
    full ? 'no-space' : 'save-failed',
    `the machine could not be saved: ${(error as Error).message}`,
    { cause: error },
  );
}
