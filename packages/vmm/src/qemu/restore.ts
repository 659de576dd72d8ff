/**
 * Makes a machine from a template: own disk, new QEMU, device state loaded, vCPUs started. The one
 * path whose every millisecond a user waits for. Called by the QEMU driver.
 */
import { chown } from 'node:fs/promises';
import { type RestoreRequest, type RestoreTimings, VmmError } from '../driver.js';
import { type Guard, startGuard } from '../guarded.js';
import type { OomWatch } from '../process/oom-watch.js';
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
import { createOverlay } from './overlay.js';
import { QemuMachine } from './qemu-machine.js';
import type { QmpClient } from './qmp-client.js';

/** Far above any real restore (0.1 s; seconds in a burst): it ends what hangs. */
const restoreTimeoutMs = 60_000;

/** Restores. Throws {@link VmmError}; nothing of the machine is left then. */
export async function restoreMachine(
  context: QemuContext,
  request: RestoreRequest,
  oomWatch: OomWatch,
  signal: AbortSignal,
): Promise<QemuMachine> {
  checkTemplate(context, request);
  const files = qemuFiles(request.folder);
  const begin = performance.now();
  const timings: RestoreTimings = { diskMs: 0, processMs: 0, loadMs: 0 };
  const guard = startGuard(signal, restoreTimeoutMs, `the start of machine ${request.id}`);
  let launched: LaunchedQemu | undefined;
  let loading = false;
  try {
    guard.signal.throwIfAborted();
    await preparePrivateFolder(request.folder, request.runAs);
    if (!request.disk.kept) await createOverlay(files.overlay, request.disk);
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
    await load(launched.qmp, request, guard);
    timings.loadMs = performance.now() - begin;
    return new QemuMachine(
      {
        driver: 'qemu',
        id: request.id,
        pid: launched.process.identity.pid,
        startTicks: launched.process.identity.startTicks,
        folder: request.folder,
      },
      {
        ports: guestPorts(files),
        stderrPath: files.stderr,
        qmp: launched.qmp,
        timings,
        oomWatch,
        process: launched.process,
      },
    );
  } catch (error) {
    const reason = launched ? await explainLoss(error, launched.process, guard, 'load-failed') : error;
    if (launched) await endLaunched(launched.process, launched.qmp);
    await removeQemuFiles(request.disk.kept ? { ...files, overlay: files.stderr } : files);
    throw reason;
  } finally {
    guard.dispose();
  }
}

function checkTemplate(context: QemuContext, request: RestoreRequest): void {
  const { template, network } = request;
  const problem =
    template.fingerprint !== context.fingerprint
      ? 'it was made with another QEMU, kernel, agent or accelerator'
      : template.networkKind !== network.kind
        ? `its network is of kind ${template.networkKind}, not ${network.kind}`
        : undefined;
  if (problem) {
    throw new VmmError(
      'bad-template',
      `the template ${template.folder} does not fit: ${problem}; build a new one`,
    );
  }
}

function restoreSpec(context: QemuContext, request: RestoreRequest): QemuMachineSpec {
  const files = qemuFiles(request.folder);
  const template = templatePaths(request.template.folder);
  return {
    binary: context.binary,
    id: request.id,
    acceleration: context.acceleration,
    shape: request.template.shape,
    networkKind: request.network.kind,
    networkRestricted: request.network.kind === 'user' && request.network.restricted,
    ...(request.network.kind === 'tap' ? { tapName: request.network.tapName } : {}),
    memoryPath: template.memory,
    strictMemory: context.strictMemory,
    modulesPath: template.modules,
    sockets: files,
    role: { kind: 'restore', overlayPath: files.overlay, backingPath: request.disk.backingPath },
  };
}

/** Loads the device state, gives the disk its size, and starts the vCPUs. */
async function load(qmp: QmpClient, request: RestoreRequest, guard: Guard): Promise<void> {
  // QMP answers in order, so what does not depend on an answer is sent without waiting for it.
  await guard.race(
    Promise.all([
      // The memory is the template's file: nothing of it is in the device state.
      qmp.execute('migrate-set-capabilities', {
        capabilities: [{ capability: 'x-ignore-shared', state: true }],
      }),
      // No gratuitous ARP storm after the start; it would compete with the agent's first answer.
      qmp.execute('migrate-set-parameters', { 'announce-rounds': 0 }),
      qmp.execute('migrate-incoming', { uri: `file:${templatePaths(request.template.folder).state}` }),
    ]),
  );
  // A failed load ends QEMU, which the guard sees.
  for (let status = 'inmigrate'; status === 'inmigrate'; ) {
    status = (await guard.race(qmp.execute<{ status: string }>('query-status'))).status;
  }
  await guard.race(
    Promise.all([
      // Needed although the overlay has this size: it tells the guest, which knows the template's disk.
      qmp.execute('block_resize', { 'node-name': qemuIds.disk, size: request.disk.sizeBytes }),
      qmp.execute('cont'),
    ]),
  );
}
