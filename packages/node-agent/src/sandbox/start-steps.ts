/**
 * The steps of a start, in order, each with its undo. Read the list in `startSandbox` first.
 *
 * | Step | Makes | Undone by |
 * |---|---|---|
 * | image | a hold on the rootfs file; of a checkpoint's disk its files are compared with their checksums | releasing it |
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
import { verifyPoint } from '../checkpoints/verify-point.js';
import type { SandboxNetwork } from '../network/network.js';
import { type BootOrder, bootMachine } from './boot-machine.js';
import type { SandboxRecord } from './record.js';
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
  record: SandboxRecord,
  parts: StartParts,
  progress: StartProgress,
  undo: StartUndo,
  signal: AbortSignal,
): Promise<StartedParts> {
  const { spec } = record;
  const files = await timed('image', progress, () =>
    record.copyOfDisk
      ? findSavedDisk(record, parts, undo.sandbox, signal)
      : holdImage(spec, parts, progress, undo.sandbox, signal),
  );
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
    const folder = parts.records.machineFolderOf(spec.sandboxId);
    undo.sandbox.push('machine folder', () => rm(folder, { recursive: true, force: true }));
    const order = { ...{ spec, template, network, policy, rebooted: false, diskKept: false }, ...files };
    return bootMachine(order, parts, progress, undo.machine, signal);
  });
}

/** What a machine's disk is made of. */
type DiskFiles = Pick<BootOrder, 'facts' | 'head' | 'layers'>;

async function holdImage(
  spec: NodeSandboxSpec,
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<DiskFiles> {
  undo.push('image', () => parts.images.release(spec.sandboxId));
  const ready = await parts.images.isReady(spec.image);
  if (!ready) progress.imageBuild(buildIdOf(spec.image));
  let hold: RootfsHold;
  try {
    hold = await parts.images.acquire(spec.image, spec.sandboxId, {
      signal,
      ...(spec.registryAuth ? { auth: spec.registryAuth } : {}),
    });
  } finally {
    progress.imageBuild(undefined);
  }
  progress.imageKnown(hold);
  const { env, user, workingDir, entrypoint, cmd } = hold.image.config;
  const { sizeBytes, mustGrow, head } = await fitDisk(hold.path, spec.diskBytes);
  return {
    facts: {
      rootfsPath: hold.path,
      diskBytes: sizeBytes,
      mustGrow,
      image: { env, user, workingDir, entrypoint, cmd },
    },
    layers: [],
    ...(head ? { head } : {}),
  };
}

/** The disk of a checkpoint: its image was held when the sandbox was accepted. */
async function findSavedDisk(
  record: SandboxRecord,
  parts: StartParts,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<DiskFiles> {
  undo.push('image', () => parts.images.release(record.spec.sandboxId));
  const { boot: facts, layers = [] } = record;
  if (!facts) throw new Error('what was saved of its disk is not known; a bug');
  await verifyPoint(record, parts, signal);
  return { facts, layers };
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
