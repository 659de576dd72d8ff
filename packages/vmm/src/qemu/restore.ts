/**
 * Makes a machine from a template or a snapshot: own disk, new QEMU, device state loaded, vCPUs started. The one
 * path whose every millisecond a user waits for. Called by the QEMU driver.
 */
import { chown } from 'node:fs/promises';
import {
  type MachineHandle,
  type MachineOrigin,
  type RestoreRequest,
  type RestoreTimings,
  type Snapshot,
  type Template,
  VmmError,
} from '../driver.js';
import { type Guard, startGuard } from '../guarded.js';
import type { OomWatch } from '../process/oom-watch.js';
import { snapshotPaths } from '../snapshot-files.js';
import { templatePaths } from '../template-files.js';
import type { QemuMachineSpec } from './argv.js';
import { qemuIds } from './argv.js';
import type { QemuContext } from './context.js';
import {
  endLaunched,
  explainLoss,
  guestPorts,
  type LaunchedQemu,
  launchQemu,
  preparePrivateFolder,
  qemuFiles,
  removeQemuFiles,
} from './launch.js';
import { createOverlay, type OverlaySpec } from './overlay.js';
import { QemuMachine } from './qemu-machine.js';
import type { QmpClient } from './qmp-client.js';
import { forgetLayerNames } from './restack.js';
import { forgetAddedDisks } from './save-snapshot.js';

/** Far above any real restore (0.1 s; seconds in a burst): it ends what hangs. */
const restoreTimeoutMs = 60_000;

/** Restores. Throws {@link VmmError}; nothing of the machine is left then. */
export async function restoreMachine(
  context: QemuContext,
  request: RestoreRequest,
  oomWatch: OomWatch,
  signal: AbortSignal,
): Promise<QemuMachine> {
  checkSource(context, request);
  const files = qemuFiles(request.folder);
  const begin = performance.now();
  const timings: RestoreTimings = { diskMs: 0, processMs: 0, loadMs: 0 };
  const guard = startGuard(signal, restoreTimeoutMs, `the start of machine ${request.id}`);
  let launched: LaunchedQemu | undefined;
  let loading = false;
  try {
    guard.signal.throwIfAborted();
    await preparePrivateFolder(request.folder, request.runAs);
    await forgetAddedDisks(request.folder);
    await forgetLayerNames(request.folder);
    if (!request.disk.kept) await createOverlay(files.overlay, overlaySpec(request));
    if (request.runAs) await chown(files.overlay, request.runAs.uid, request.runAs.gid);
    timings.diskMs = performance.now() - begin;
    launched = await launchQemu(
      restoreSpec(context, request),
      {
        netnsPath: request.network.kind === 'tap' ? request.network.netnsPath : undefined,
        runAs: request.runAs,
        kvmGid: context.kvmGid,
      },
      { folder: request.folder, files, cgroupPath: request.cgroupPath },
      guard,
      () => (loading ? 'load-failed' : 'start-failed'),
    );
    timings.processMs = performance.now() - begin;
    loading = true;
    const handle: MachineHandle = {
      driver: 'qemu',
      id: request.id,
      pid: launched.process.identity.pid,
      startTicks: launched.process.identity.startTicks,
      folder: request.folder,
      origin: originOf(context, request),
    };
    await load(launched.qmp, request, handle, guard);
    timings.loadMs = performance.now() - begin;
    return new QemuMachine(handle, {
      ports: guestPorts(files),
      stderrPath: files.stderr,
      qmp: launched.qmp,
      timings,
      oomWatch,
      process: launched.process,
    });
  } catch (error) {
    const reason = launched ? await explainLoss(error, launched.process, guard, 'load-failed') : error;
    if (launched) await endLaunched(launched.process, launched.qmp);
    await removeQemuFiles(request.disk.kept ? { ...files, overlay: files.stderr } : files);
    throw reason;
  } finally {
    guard.dispose();
  }
}

function isSnapshot(from: Template | Snapshot): from is Snapshot {
  return 'disk' in from;
}

function checkSource(context: QemuContext, { from, network }: RestoreRequest): void {
  const other =
    from.networkKind === network.kind
      ? undefined
      : `its network is of kind ${from.networkKind}, not ${network.kind}`;
  if (isSnapshot(from)) {
    const problem =
      from.snapshotFingerprint === context.snapshotFingerprint
        ? other
        : `it was made with another QEMU, accelerator or processor than those here (QEMU ${context.version})`;
    if (problem)
      throw new VmmError('bad-snapshot', `the snapshot ${from.folder} cannot be restored: ${problem}`);
    return;
  }
  const problem =
    from.fingerprint === context.fingerprint
      ? other
      : 'it was made with another QEMU, kernel, agent or accelerator';
  if (problem)
    throw new VmmError(
      'bad-template',
      `the template ${from.folder} does not fit: ${problem}; build a new one`,
    );
}

function overlaySpec({ disk }: RestoreRequest): OverlaySpec {
  const { frozen = [] } = disk;
  const highest = frozen.at(-1);
  return highest === undefined ? disk : { ...disk, backingPath: highest, backingFormat: 'qcow2' };
}

function pathsOf(from: Template | Snapshot): { memory: string; state: string; modules: string } {
  return isSnapshot(from) ? snapshotPaths(from.folder) : templatePaths(from.folder);
}

function originOf(context: QemuContext, { from, disk }: RestoreRequest): MachineOrigin {
  const { memory, modules } = pathsOf(from);
  const { backingPath, frozen = [], sizeBytes } = disk;
  return {
    memoryPath: memory,
    modulesPath: modules,
    shape: from.shape,
    networkKind: from.networkKind,
    snapshotFingerprint: context.snapshotFingerprint,
    disk: { backingPath, frozen, sizeBytes },
  };
}

function restoreSpec(context: QemuContext, request: RestoreRequest): QemuMachineSpec {
  const files = qemuFiles(request.folder);
  const { memory, modules } = pathsOf(request.from);
  const { backingPath, frozen = [] } = request.disk;
  return {
    binary: context.binary,
    id: request.id,
    acceleration: context.acceleration,
    shape: request.from.shape,
    networkKind: request.network.kind,
    networkRestricted: request.network.kind === 'user' && request.network.restricted,
    ...(request.network.kind === 'tap' ? { tapName: request.network.tapName } : {}),
    memoryPath: memory,
    strictMemory: context.strictMemory,
    modulesPath: modules,
    sockets: files,
    role: { kind: 'restore', overlayPath: files.overlay, layers: { backingPath, frozen } },
  };
}

/** Loads the device state, gives the disk its size, and starts the vCPUs. */
async function load(
  qmp: QmpClient,
  request: RestoreRequest,
  handle: MachineHandle,
  guard: Guard,
): Promise<void> {
  // QMP answers in order, so what does not depend on an answer is sent without waiting for it.
  await guard.race(
    Promise.all([
      // The memory is the template's file: nothing of it is in the device state.
      qmp.execute('migrate-set-capabilities', {
        capabilities: [{ capability: 'x-ignore-shared', state: true }],
      }),
      // No gratuitous ARP storm after the start; it would compete with the agent's first answer.
      qmp.execute('migrate-set-parameters', { 'announce-rounds': 0 }),
      qmp.execute('migrate-incoming', { uri: `file:${pathsOf(request.from).state}` }),
    ]),
  );
  // A failed load ends QEMU, which the guard sees.
  for (let status = 'inmigrate'; status === 'inmigrate'; ) {
    status = (await guard.race(qmp.execute<{ status: string }>('query-status'))).status;
  }
  if (request.beforeRun) await guard.race(request.beforeRun(handle));
  await guard.race(
    Promise.all([
      // Needed although the overlay has this size: it tells the guest, which knows the template's disk.
      ...(isSnapshot(request.from)
        ? []
        : [qmp.execute('block_resize', { 'node-name': qemuIds.disk, size: request.disk.sizeBytes })]),
      qmp.execute('cont'),
    ]),
  );
}
