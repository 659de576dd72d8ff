/**
 * The steps of a start of a copy: network, restore from the snapshot of its source, a new identity, a first command. Called by
 * `sandbox.ts`, for a fork and for a create with a checkpoint's memory. The image's root file system is held for it when it is accepted (`copies.ts`).
 *
 * The guest goes on where its source was, as somebody else, or not at all: one that does not confirm its new identity
 * is ended. If we die on the way, the start begins anew from the same snapshot.
 */
import { rm } from 'node:fs/promises';
import type { Machine } from '@sandlot/vmm';
import { verifyPoint } from '../checkpoints/verify-point.js';
import type { SandboxNetwork } from '../network/network.js';
import { applyFixups, identityOf } from './apply-fixups.js';
import { probeGuest } from './probe-guest.js';
import type { SandboxRecord } from './record.js';
import { limitAndConnect, restoreMachine } from './restore-machine.js';
import { type StartedParts, type StartParts, type StartProgress, timed } from './start-parts.js';
import type { StartUndo } from './start-steps.js';
import type { UndoStack } from './undo-stack.js';
import { whileItLives } from './while-it-lives.js';

/** Runs all steps. On a throw the caller runs both undo stacks, the machine's first. */
export async function startCopy(
  record: SandboxRecord,
  source: SandboxNetwork | undefined,
  parts: StartParts,
  progress: StartProgress,
  undo: StartUndo,
  signal: AbortSignal,
): Promise<StartedParts> {
  const { spec } = record;
  undo.sandbox.push('image', () => parts.images.release(spec.sandboxId));
  if (spec.checkpoint) await timed('image', progress, () => verifyPoint(record, parts, signal));
  if (parts.restores.isFull) progress.stage('queue');
  return parts.restores.run(signal, async () => {
    const network = await timed('network', progress, async () => {
      const acquired = await parts.networks.acquire();
      undo.sandbox.push('network', () => acquired.release());
      await progress.save({ network: acquired.handle });
      // Before the machine: its processes run as soon as it does.
      await acquired.applyPolicy(spec.egress);
      if (source) await acquired.takeNamesOf(source);
      return acquired;
    });
    signal.throwIfAborted();
    const folder = parts.records.machineFolderOf(spec.sandboxId);
    undo.sandbox.push('machine folder', () => rm(folder, { recursive: true, force: true }));
    const machine = await timed('restore', progress, () =>
      restore(record, network, parts, undo.machine, signal),
    );
    await progress.save({ machine: machine.handle });
    const warn = (message: string) => progress.warn(message);
    const guest = await limitAndConnect(machine, spec, parts, undo.machine, warn);
    await whileItLives(machine, async () => {
      await timed('mount', progress, () => applyFixups(guest, identityOf(record), signal));
      await timed('ready', progress, () => probeGuest(guest, signal));
    });
    return { machine, network, guest };
  });
}

async function restore(
  record: SandboxRecord,
  network: SandboxNetwork,
  parts: StartParts,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<Machine> {
  const { spec, memory, boot } = record;
  const from = memory === undefined ? undefined : await parts.snapshots.read(memory);
  if (!from || !boot) throw new Error('what was saved of its source is missing or damaged');
  const disk = { backingPath: boot.rootfsPath, sizeBytes: boot.diskBytes };
  return restoreMachine({ spec, from, network, disk, reads: record }, parts, undo, signal);
}
