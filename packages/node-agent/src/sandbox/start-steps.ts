/**
 * The steps of a start, in order, each with its undo. Read the list in `startSandbox` first.
 *
 * | Step | Makes | Undone by |
 * |---|---|---|
 * | image | a hold on the rootfs file | releasing it |
 * | template | (shared, stays) | |
 * | queue | a place among the restores at work | the restore's end |
 * | network | a namespace with the policy in force | removing it |
 * | restore | the machine, its overlay and sockets | ending it, removing its folder |
 * | mount | root mounted, clock, entropy, names set in the guest | the machine's end |
 * | ready | the default view, then the start command runs | the machine's end |
 *
 * If we die between two of them: the record names what was made; `Sandboxes.open` undoes it and
 * starts again. A machine that was started but is not yet in the record is found by its folder.
 */

import { createHash, randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DiskFit, fitDisk, type ImageStore, type RootfsHold } from '@sandlot/images';
import type { ExecStart, GuestInit, GuestInitResult, NodeSandboxSpec, StartStage } from '@sandlot/protocol';
import { type Machine, MachineEndedError, type VmmDriver } from '@sandlot/vmm';
import { GuestUnreachableError } from '../guest/channel.js';
import { GuestCallError, GuestClient } from '../guest/guest-client.js';
import { guestAddresses, type Networks, type SandboxNetwork } from '../network/network.js';
import type { TemplateStore } from '../templates/template-store.js';
import type { CpuLimits } from './cpu-limits.js';
import type { RecordFolder, SandboxRecord } from './record.js';
import type { Semaphore } from './semaphore.js';
import type { UndoStack } from './undo-stack.js';
import { ViewRefusedError } from './view-refused.js';

/** What the steps work with: the node's parts. */
export interface StartParts {
  driver: VmmDriver;
  images: ImageStore;
  networks: Networks;
  templates: TemplateStore;
  records: RecordFolder;
  cpuLimits: CpuLimits;
  /** Limits restores that run at once. */
  restores: Semaphore;
}

/** What the steps tell their sandbox while they run. */
export interface StartProgress {
  stage(stage: StartStage): void;
  timing(stage: StartStage, ms: number): void;
  /** The record has changed and must be on disk before we go on. */
  save(
    change: Partial<Pick<SandboxRecord, 'network' | 'machine' | 'shell' | 'startCommandRuns'>>,
  ): Promise<void>;
  imageKnown(hold: RootfsHold): void;
  /** Set while the image is not here yet. */
  imageBuild(id: string | undefined): void;
  /** What each part of init took, for the log. */
  guestInitialised(result: GuestInitResult & { callMs: number }): void;
  warn(message: string): void;
}

/** A started sandbox's parts. */
export interface StartedParts {
  machine: Machine;
  network: SandboxNetwork;
  guest: GuestClient;
}

/** The guest's first answer may take this long on a host that starts many machines at once, ms. */
const guestDeadlineMs = 60_000;
const endIsKnownMs = 1_000;

/** Runs all steps. On a throw the caller runs the undo stack. */
export async function startSandbox(
  spec: NodeSandboxSpec,
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<StartedParts> {
  const hold = await timed('image', progress, () => holdImage(spec, parts, progress, undo, signal));
  progress.imageKnown(hold);
  const shape = { vcpus: spec.vcpus, memoryMiB: spec.memoryMiB };
  const template = await timed('template', progress, () => untilAborted(parts.templates.get(shape), signal));
  signal.throwIfAborted();
  if (parts.restores.isFull) progress.stage('queue');
  const queuedMs = performance.now();
  return parts.restores.run(signal, async () => {
    progress.timing('queue', performance.now() - queuedMs);
    const network = await timed('network', progress, () => acquireNetwork(parts, progress, undo));
    const policy = network.applyPolicy(spec.egress);
    // Its failure is reported where it is awaited, also when the restore fails first.
    policy.catch(() => {});
    signal.throwIfAborted();
    const disk = await fitDisk(hold.path, spec.diskBytes);
    const machine = await timed('restore', progress, async () => {
      const folder = parts.records.machineFolderOf(spec.sandboxId);
      undo.push('machine folder', () => rm(folder, { recursive: true, force: true }));
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const restored = await parts.driver.restore(
        {
          id: spec.sandboxId,
          folder,
          template,
          disk: {
            backingPath: hold.path,
            sizeBytes: disk.sizeBytes,
            ...(disk.head ? { head: disk.head } : {}),
          },
          network: network.machine,
          ...(network.runAs ? { runAs: network.runAs } : {}),
        },
        signal,
      );
      undo.push('machine', () => restored.end());
      await progress.save({ machine: restored.handle });
      return restored;
    });
    if (machine.timings) progress.timing('disk', machine.timings.diskMs);
    if (spec.cpuLimit > 0) {
      undo.push('cpu limit', () => parts.cpuLimits.remove(spec.sandboxId));
      const warning = await parts.cpuLimits.apply(spec.sandboxId, machine.handle.pid, spec.cpuLimit);
      if (warning) progress.warn(warning);
    }
    const guest = new GuestClient(machine.ports);
    undo.push('guest connection', async () => guest.close());
    await whileItLives(machine, async () => {
      await timed('mount', progress, () => initGuest(spec, hold, disk, guest, progress, signal));
      await timed('ready', progress, async () => {
        await policy;
        await makeView(spec, guest, signal);
        await runStartCommand(spec, hold, guest, progress);
      });
    });
    return { machine, network, guest };
  });
}

/**
 * Fails as soon as the machine ends, with its cause: work on its guest would wait for an answer until its own
 * deadline. When the guest cannot be reached although its machine runs, its console says more than we can.
 */
async function whileItLives<T>(machine: Machine, work: () => Promise<T>): Promise<T> {
  const ended = machine.ended.then((end): never => {
    throw new MachineEndedError(end);
  });
  try {
    return await Promise.race([work(), ended]);
  } catch (cause) {
    if (!(cause instanceof GuestUnreachableError)) throw cause;
    // The connection breaks a moment before the end of the process is known.
    await Promise.race([ended, sleep(endIsKnownMs, undefined, { ref: false })]);
    const console = (await machine.readSerialTail(1000).catch(() => '')).trim();
    const words = console === '' ? 'its console is empty' : `the end of its console: ${console}`;
    throw new GuestUnreachableError(`${cause.message}; ${words}`, { cause });
  }
}

async function holdImage(
  spec: NodeSandboxSpec,
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<RootfsHold> {
  undo.push('image', () => parts.images.release(spec.sandboxId));
  const ready = await parts.images.isReady(spec.image);
  if (!ready) progress.imageBuild(buildIdOf(spec.image));
  try {
    return await parts.images.acquire(spec.image, spec.sandboxId, {
      signal,
      ...(spec.registryAuth ? { auth: spec.registryAuth } : {}),
    });
  } finally {
    progress.imageBuild(undefined);
  }
}

async function acquireNetwork(
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
): Promise<SandboxNetwork> {
  const network = await parts.networks.acquire();
  undo.push('network', () => network.release());
  await progress.save({ network: network.handle });
  return network;
}

async function initGuest(
  spec: NodeSandboxSpec,
  hold: RootfsHold,
  disk: DiskFit,
  guest: GuestClient,
  progress: StartProgress,
  signal: AbortSignal,
): Promise<void> {
  await guest.connect(guestDeadlineMs, signal);
  const { env, user, workingDir, entrypoint, cmd } = hold.image.config;
  const init: GuestInit = {
    sandboxId: spec.sandboxId,
    timeUnixMs: Date.now(),
    entropyBase64: randomBytes(64).toString('base64'),
    hostname: spec.hostname,
    machineId: machineIdOf(spec.sandboxId, spec.generation),
    resolvConf: `nameserver ${guestAddresses.resolver}\noptions timeout:3 attempts:3\n`,
    image: { env, user, workingDir, entrypoint, cmd },
    env: spec.env,
    secrets: spec.secrets,
    growRoot: disk.mustGrow,
    cpuLimit: 0,
  };
  const connectedMs = performance.now();
  const result = await guest.init(init, signal);
  progress.guestInitialised({ ...result, callMs: performance.now() - connectedMs });
  await progress.save({ shell: result.shell });
  if (result.shell === '') {
    progress.warn(
      'The image has no shell, neither in /bin nor on its PATH: commands need a full path and no shell syntax.',
    );
  }
}

/**
 * Before the start command, so that what must exist is what the image brings, and a start is refused or not by that
 * alone. The start command itself is its owner's service: it acts outside.
 */
async function makeView(spec: NodeSandboxSpec, guest: GuestClient, signal: AbortSignal): Promise<void> {
  if (!spec.view) return;
  try {
    await guest.makeView(spec.view, signal);
  } catch (error) {
    if (error instanceof GuestCallError && error.status === 400) throw new ViewRefusedError(error);
    throw error;
  }
}

async function runStartCommand(
  spec: NodeSandboxSpec,
  hold: RootfsHold,
  guest: GuestClient,
  progress: StartProgress,
): Promise<void> {
  if (!spec.startCommand) return;
  const { entrypoint, cmd } = hold.image.config;
  const argv = 'argv' in spec.startCommand ? spec.startCommand.argv : [...entrypoint, ...cmd];
  if (argv.length === 0) {
    progress.warn('The image has neither ENTRYPOINT nor CMD: nothing was started.');
    return;
  }
  const start: ExecStart = { argv, shellFallback: true };
  await guest.startCommand(start);
  await progress.save({ startCommandRuns: true });
}

/** The result of work that is shared with others and goes on for them, unless the signal aborts first: a delete must not wait for it. */
async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** The id of the build of an image that a user can ask for: the same for all who wait for the same image. */
export function buildIdOf(image: string): string {
  return `build-${createHash('sha256').update(image).digest('hex').slice(0, 20)}`;
}

/** 32 hex digits that differ for each sandbox and generation, and are the same when a start is repeated. */
export function machineIdOf(sandboxId: string, generation: number): string {
  return createHash('sha256').update(`machine-id ${sandboxId} ${generation}`).digest('hex').slice(0, 32);
}

async function timed<T>(stage: StartStage, progress: StartProgress, work: () => Promise<T>): Promise<T> {
  progress.stage(stage);
  const startedMs = performance.now();
  try {
    return await work();
  } finally {
    progress.timing(stage, performance.now() - startedMs);
  }
}
