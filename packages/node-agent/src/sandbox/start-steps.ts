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
 * | mount | root mounted, clock, entropy, names set in the guest; the image's init, if asked for, is process 1 | the machine's end |
 * | ready | the default view, then the start command runs | the machine's end |
 *
 * The last three are `boot-machine.ts`, which a reboot does again.
 *
 * If we die between two of them: the record names what was made; `Sandboxes.open` undoes it and
 * starts again. A machine that was started but is not yet in the record is found by its folder.
 */

import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { fitDisk, type RootfsHold } from '@sandlot/images';
import type { NodeSandboxSpec } from '@sandlot/protocol';
import type { SandboxNetwork } from '../network/network.js';
import { bootMachine } from './boot-machine.js';
import {
  type StartedParts,
  type StartParts,
  type StartProgress,
  timed,
  untilAborted,
} from './start-parts.js';
import type { UndoStack } from './undo-stack.js';

/** How to undo a start: what belongs to one machine apart from what outlives its reboots. */
export interface StartUndo {
  sandbox: UndoStack;
  machine: UndoStack;
}

/** Runs all steps. On a throw the caller runs both undo stacks, the machine's first. */
export async function startSandbox(
  spec: NodeSandboxSpec,
  parts: StartParts,
  progress: StartProgress,
  undo: StartUndo,
  signal: AbortSignal,
): Promise<StartedParts> {
  const hold = await timed('image', progress, () => holdImage(spec, parts, progress, undo.sandbox, signal));
  progress.imageKnown(hold);
  const shape = { vcpus: spec.vcpus, memoryMiB: spec.memoryMiB };
  const template = await timed('template', progress, () => untilAborted(parts.templates.get(shape), signal));
  signal.throwIfAborted();
  if (parts.restores.isFull) progress.stage('queue');
  const queuedMs = performance.now();
  return parts.restores.run(signal, async () => {
    progress.timing('queue', performance.now() - queuedMs);
    const network = await timed('network', progress, () => acquireNetwork(parts, progress, undo.sandbox));
    const policy = network.applyPolicy(spec.egress);
    // Its failure is reported where it is awaited, also when the restore fails first.
    policy.catch(() => {});
    signal.throwIfAborted();
    const { env, user, workingDir, entrypoint, cmd } = hold.image.config;
    const disk = await fitDisk(hold.path, spec.diskBytes);
    const folder = parts.records.machineFolderOf(spec.sandboxId);
    undo.sandbox.push('machine folder', () => rm(folder, { recursive: true, force: true }));
    const facts = {
      rootfsPath: hold.path,
      diskBytes: disk.sizeBytes,
      mustGrow: disk.mustGrow,
      image: { env, user, workingDir, entrypoint, cmd },
    };
    const order = {
      ...{ spec, facts, template, network, policy, rebooted: false, layers: [] },
      ...(disk.head ? { head: disk.head } : {}),
    };
    return bootMachine(order, parts, progress, undo.machine, signal);
  });
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

/** The id of the build of an image that a user can ask for: the same for all who wait for the same image. */
export function buildIdOf(image: string): string {
  return `build-${createHash('sha256').update(image).digest('hex').slice(0, 20)}`;
}
