/**
 * Makes a template: boots a machine with the memory in a shared file, lets the caller exercise the
 * guest agent, stops it, saves the device state. Called by the QEMU driver.
 *
 * While it runs, everything is in `<folder>/build`; `template.json` appears last. If we die on the way,
 * the folder has no `template.json` and is no template.
 */
import { constants } from 'node:fs';
import { chmod, chown, copyFile, link, mkdir, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type RunAs, type Template, type TemplateRequest, VmmError } from '../driver.js';
import { type Guard, startGuard } from '../guarded.js';
import { readTail } from '../process/vmm-process.js';
import { completeTemplate, emptyFolder, templatePaths } from '../template-files.js';
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
} from './launch.js';
import type { QmpClient } from './qmp-client.js';

/** A boot takes 3 s alone, under emulation on a busy host ten times as long. */
const buildTimeoutMs = 180_000;
/** Lets the guest finish what it does after its boot, so that a restored one does not have to. */
const settleMs = 300;

/** Builds. Throws {@link VmmError}; process and files are gone then. */
export async function buildQemuTemplate(
  context: QemuContext,
  request: TemplateRequest,
  signal: AbortSignal,
): Promise<Template> {
  const guard = startGuard(signal, buildTimeoutMs, `the build of the template ${request.folder}`);
  let launched: LaunchedQemu | undefined;
  const build = join(request.folder, 'build');
  const serialPath = join(build, 'serial.log');
  const files = qemuFiles(build);
  try {
    guard.signal.throwIfAborted();
    const paths = await prepare(context, request, build);
    launched = await launchQemu(
      {
        binary: context.binary,
        id: 'template',
        acceleration: context.acceleration,
        shape: request.shape,
        networkKind: request.network.kind,
        networkRestricted: request.network.kind === 'user' && request.network.restricted,
        ...(request.network.kind === 'tap' ? { tapName: request.network.tapName } : {}),
        memoryPath: paths.memory,
        modulesPath: templatePaths(request.folder).modules,
        sockets: files,
        role: {
          kind: 'template',
          kernelPath: paths.kernel,
          initramfsPath: paths.initramfs,
          serialPath,
        },
      },
      {
        netnsPath: request.network.kind === 'tap' ? request.network.netnsPath : undefined,
        runAs: request.runAs,
        kvmGid: context.kvmGid,
        endsWithUs: true,
      },
      { folder: build, files },
      guard,
      () => 'template-failed',
    );
    await waitForAgentPort(launched.qmp, guard);
    await guard.race(request.warm(guestPorts(files), guard.signal));
    await guard.race(sleep(settleMs));
    await freeze(launched.qmp, paths.state, guard);
    await endLaunched(launched.process, launched.qmp);
    launched = undefined;
    // The process has ended as it should; from here only an abort or the deadline can fail the guard.
    return await seal(context, request, build);
  } catch (error) {
    const serial = await readTail(serialPath, 4000);
    const reason = launched ? await explainLoss(error, launched.process, guard, 'template-failed') : error;
    if (launched) await endLaunched(launched.process, launched.qmp);
    await emptyFolder(request.folder);
    throw asTemplateError(reason, serial);
  } finally {
    guard.dispose();
  }
}

async function prepare(
  context: QemuContext,
  request: TemplateRequest,
  build: string,
): Promise<{ memory: string; state: string; kernel: string; initramfs: string }> {
  await mkdir(request.folder, { recursive: true });
  await chmod(request.folder, 0o755);
  await preparePrivateFolder(build, request.runAs);
  const paths = {
    memory: join(build, 'memory'),
    state: join(build, 'state'),
    kernel: join(build, 'kernel'),
    initramfs: join(build, 'initramfs.cpio'),
  };
  // Here, because the assets may lie where the machine's identity has no way to: in root's home.
  await linkOrCopy(context.assets.kernelPath, paths.kernel);
  await linkOrCopy(context.assets.initramfsPath, paths.initramfs);
  const memory = await open(paths.memory, 'wx', 0o600);
  try {
    await memory.truncate(request.shape.memoryMiB * 1024 * 1024);
  } finally {
    await memory.close();
  }
  await giveTo(paths.memory, request.runAs);
  // The template keeps the module disk it was booted with: the guest has parts of it in memory.
  await linkOrCopy(context.assets.modulesPath, templatePaths(request.folder).modules);
  return paths;
}

/** Resolves when the guest agent has opened its control port: the guest has booted. */
async function waitForAgentPort(qmp: QmpClient, guard: Guard): Promise<void> {
  let stop: () => void = () => {};
  const opened = new Promise<void>((resolve) => {
    stop = qmp.onEvent(({ event, data }) => {
      if (event === 'VSERPORT_CHANGE' && data['id'] === qemuIds.ctlPort && data['open'] === true) resolve();
      if (event === 'SHUTDOWN') {
        guard.fail(
          new VmmError('template-failed', `the guest stopped while it booted (${String(data['reason'])})`),
        );
      }
    });
  });
  try {
    await guard.race(opened);
  } finally {
    stop();
  }
}

async function freeze(qmp: QmpClient, statePath: string, guard: Guard): Promise<void> {
  await guard.race(qmp.execute('stop'));
  // Device state only; the memory is its own file. Despite its name it has nothing to do with Xen.
  await guard.race(qmp.execute('xen-save-devices-state', { filename: statePath }, 30_000));
}

/** Moves the files out of the build folder, takes every right to write from them, and marks the template complete. */
async function seal(context: QemuContext, request: TemplateRequest, build: string): Promise<Template> {
  const paths = templatePaths(request.folder);
  for (const name of ['memory', 'state'] as const) {
    const path = join(build, name);
    const file = await open(path, 'r+');
    try {
      // On the disk before template.json says that it is.
      await file.datasync();
      await file.chmod(0o444);
      if (request.runAs) await file.chown(process.getuid!(), process.getgid!());
    } finally {
      await file.close();
    }
    await rename(path, paths[name]);
  }
  await rm(build, { recursive: true });
  const template: Template = {
    folder: request.folder,
    shape: request.shape,
    networkKind: request.network.kind,
    fingerprint: context.fingerprint,
  };
  await completeTemplate(template, ['memory', 'state', 'modules.ext4']);
  return template;
}

async function giveTo(path: string, runAs: RunAs | undefined): Promise<void> {
  if (runAs) await chown(path, runAs.uid, runAs.gid);
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch {
    // Another file system, or one without hard links.
    await copyFile(from, to, constants.COPYFILE_FICLONE);
    await chmod(to, 0o444);
  }
}

function asTemplateError(error: unknown, serial: string): VmmError {
  if (error instanceof VmmError && ['aborted', 'no-space', 'vmm-missing'].includes(error.code)) return error;
  const code = error instanceof VmmError ? error.code : 'template-failed';
  const full = (error as NodeJS.ErrnoException).code === 'ENOSPC';
  const lines = serial.split('\n');
  const telling = lines.filter((line) => line.includes('Kernel panic'));
  const shown = (telling.length > 0 ? telling : lines.slice(-5)).map((line) => line.trim()).join(' | ');
  const said = shown === '' ? '' : `; the guest's console said: ${shown}`;
  return new VmmError(
    full ? 'no-space' : code,
    `the template could not be built: ${(error as Error).message}${said}`,
    { cause: error },
  );
}
