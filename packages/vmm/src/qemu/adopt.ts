/**
 * Finds a machine again after our own restart, by its handle. Called by the QEMU driver. It starts
 * nothing; a QEMU whose guest had stopped meanwhile is asked why, and
 * ended unless it waits for a reboot.
 */
import type { Machine, MachineEnd, MachineHandle } from '../driver.js';
import { explainEnd } from '../machine-end.js';
import type { OomWatch } from '../process/oom-watch.js';
import { isRunning, killProcess, waitUntilGone } from '../process/process-identity.js';
import { readTail } from '../process/vmm-process.js';
import { guestPorts, qemuFiles } from './launch.js';
import { QemuMachine } from './qemu-machine.js';
import { QmpClient } from './qmp-client.js';
import { forgetLayerNames } from './restack.js';
import { settleDisk } from './save-snapshot.js';

/** A host that starts many machines at once can be this slow; a QEMU that is slower is stuck. */
const connectTimeoutMs = 30_000;

/** See {@link VmmDriver.adopt}. */
export async function adoptMachine(handle: MachineHandle, oomWatch: OomWatch): Promise<Machine | MachineEnd> {
  const files = qemuFiles(handle.folder);
  if (!isRunning(handle)) return foundGone(files.stderr);
  let qmp: QmpClient;
  try {
    qmp = await QmpClient.connect(files.qmp, connectTimeoutMs);
  } catch (error) {
    if (!isRunning(handle)) return foundGone(files.stderr);
    // It runs and cannot be talked to: nobody can ever use it, and it holds memory.
    killProcess(handle);
    await waitUntilGone(handle, connectTimeoutMs);
    return {
      cause: 'vmm-error',
      detail: `process ${handle.pid} ran but did not answer (${(error as Error).message}); it was ended`,
    };
  }
  const machine = new QemuMachine(handle, {
    ports: guestPorts(files),
    stderrPath: files.stderr,
    qmp,
    timings: undefined,
    oomWatch,
    process: undefined,
  });
  try {
    const [status, chardevs] = await Promise.all([
      qmp.execute<{ status: string }>('query-status'),
      qmp.execute<{ label: string; 'frontend-open': boolean }[]>('query-chardev'),
    ]);
    if (status.status === 'shutdown') {
      // Powered off or rebooted: which of the two was in an event that nobody heard.
      await machine.noteGuestStoppedUnseen();
      return machine.waitsForReboot ? machine : await machine.ended;
    }
    if (status.status === 'guest-panicked') {
      machine.noteGuestStopped('guest-panic');
      return await machine.ended;
    }
    if (chardevs.some((chardev) => chardev.label === 'c_ctl' && !chardev['frontend-open'])) {
      machine.noteGuestPortClosed();
    }
    await settleDisk(handle, qmp);
    await forgetLayerNames(handle.folder);
    return machine;
  } catch (error) {
    if (!isRunning(handle)) return await machine.ended;
    machine.detach();
    throw error;
  }
}

async function foundGone(stderrPath: string): Promise<MachineEnd> {
  const stderrTail = await readTail(stderrPath, 2000);
  const evidence = { requested: false, serialTail: '', stderrTail, hostKilledForMemory: false };
  const { cause, detail } = explainEnd(evidence);
  return {
    cause: 'found-gone',
    detail: cause === 'vmm-error' ? detail : 'the process ended while nobody was watching',
  };
}
