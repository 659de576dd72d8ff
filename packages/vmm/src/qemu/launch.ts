/**
 * Starts one QEMU and connects to its QMP socket, under a guard that fails as soon as the process
 * ends. Used for templates, restores and the KVM probe.
 */

import { once } from 'node:events';
import { chmod, chown, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type GuestPorts, VmmError } from '../driver.js';
import type { Guard } from '../guarded.js';
import { killProcess } from '../process/process-identity.js';
import { readTail, startVmmProcess, type VmmProcess } from '../process/vmm-process.js';
import { buildQemuArgv, type Confinement, confineArgv, type QemuMachineSpec } from './argv.js';
import { QmpClient, QmpCommandError, QmpConnectionError } from './qmp-client.js';

/** A QEMU that answers. */
export interface LaunchedQemu {
  process: VmmProcess;
  qmp: QmpClient;
}

/** Files of one QEMU process in its folder. Names are short: a socket's path has 107 bytes at most. */
export interface QemuFiles {
  ctl: string;
  data: string;
  qmp: string;
  stderr: string;
  overlay: string;
}

/** Longest path of a unix socket, see unix(7). */
const maxSocketPath = 107;

/** Paths below `folder`. Throws {@link VmmError} `start-failed` if a socket's path would be too long. */
export function qemuFiles(folder: string): QemuFiles {
  const files = {
    ctl: join(folder, 'ctl.sock'),
    data: join(folder, 'data.sock'),
    qmp: join(folder, 'qmp.sock'),
    stderr: join(folder, 'stderr.log'),
    overlay: join(folder, 'overlay.qcow2'),
  };
  if (Buffer.byteLength(files.data) > maxSocketPath) {
    throw new VmmError(
      'start-failed',
      `the folder ${folder} is too long for a unix socket in it; use a shorter data folder`,
    );
  }
  return files;
}

/** The guest's ports among them. */
export function guestPorts(files: QemuFiles): GuestPorts {
  return { ctl: files.ctl, data: files.data };
}

/** Makes `folder` and gives it to the machine's identity alone. */
export async function preparePrivateFolder(folder: string, runAs: Confinement['runAs']): Promise<void> {
  await mkdir(folder, { recursive: true });
  await chmod(folder, 0o700);
  if (runAs) await chown(folder, runAs.uid, runAs.gid);
}

/**
 * Starts QEMU. `phase` is asked when the process ends too early, for the error. Throws what the guard
 * fails with; the process is gone then.
 */
export async function launchQemu(
  spec: QemuMachineSpec,
  confinement: Confinement,
  place: { folder: string; files: QemuFiles; cgroupPath?: string | undefined },
  guard: Guard,
  phase: () => 'start-failed' | 'load-failed' | 'template-failed',
): Promise<LaunchedQemu> {
  guard.signal.throwIfAborted();
  const process = await startVmmProcess(confineArgv(buildQemuArgv(spec), confinement), {
    stderrPath: place.files.stderr,
    cwd: place.folder,
    environment: { PATH: globalThis.process.env['PATH'], LC_ALL: 'C' },
    cgroupPath: place.cgroupPath,
  });
  void process.exited.then(async ({ code, signal }) => {
    const stderr = await readTail(place.files.stderr, 2000);
    const how = signal === null ? `ended with status ${code}` : `was ended by ${signal}`;
    const full = /No space left on device/.test(stderr);
    const tunShut = /could not open \/dev\/net\/tun: Permission denied/.test(stderr);
    const hint = tunShut ? '; make /dev/net/tun 0666, as udev does (a tap is protected by its owner)' : '';
    guard.fail(
      new VmmError(
        full ? 'no-space' : phase(),
        `QEMU ${how} before the machine ran${stderr && `: ${stderr}`}${hint}`,
      ),
    );
  });
  try {
    const qmp = await guard.race(QmpClient.connect(place.files.qmp, 60_000, guard.signal));
    return { process, qmp };
  } catch (error) {
    const reason = await explainLoss(error, process, guard, phase());
    await endLaunched(process);
    throw reason;
  }
}

/** The kernel closes a dying process's sockets before it tells of its death: waits for the better reason. */
const deathRattleMs = 2000;

/**
 * Why a start failed, given what its step failed with. A lost connection is only the shadow of
 * something else: mostly of the end of the process, which the guard then knows.
 */
export async function explainLoss(
  error: unknown,
  process: VmmProcess,
  guard: Guard,
  code: 'start-failed' | 'load-failed' | 'template-failed',
): Promise<unknown> {
  if (error instanceof QmpCommandError) return new VmmError(code, error.message, { cause: error });
  if (!(error instanceof QmpConnectionError)) return error;
  const ended = await Promise.race([process.exited.then(() => true), sleep(deathRattleMs, false)]);
  if (!ended) return new VmmError(code, `QEMU answers no more: ${error.message}`, { cause: error });
  if (!guard.signal.aborted) await once(guard.signal, 'abort');
  return guard.signal.reason as unknown;
}

/** Kills a process that is not yet, or no more, a machine, and waits until it is reaped. */
export async function endLaunched(process: VmmProcess, qmp?: QmpClient): Promise<void> {
  qmp?.close();
  killProcess(process.identity);
  await process.exited;
}

/** Removes the files of a start that failed. */
export async function removeQemuFiles(files: QemuFiles): Promise<void> {
  await Promise.all(Object.values(files).map((path: string) => rm(path, { force: true })));
}
