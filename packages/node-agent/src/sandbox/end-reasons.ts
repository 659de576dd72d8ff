/** From how a machine or a start ended to what the user is told. Pure. Used by `sandbox.ts`. */
import { ImageError } from '@sandlot/images';
import type { EndReason, NodeSandboxSpec } from '@sandlot/protocol';
import { type MachineEnd, MachineEndedError, VmmError } from '@sandlot/vmm';
import { GuestCallError } from '../guest/guest-client.js';
import { DamagedFileError } from '../snapshots/checksums.js';
import { ViewRefusedError } from './view-refused.js';

/** A reason and its sentence. */
export interface EndCause {
  reason: EndReason;
  message: string;
}

/** What Linux says when it panics for want of memory (mm/oom_kill.c, `out_of_memory`). */
const memoryPanic = /deadlocked on memory|out of memory/i;

/** Why a running sandbox has ended, from its machine. */
export function causeOfMachineEnd(end: MachineEnd): EndCause {
  switch (end.cause) {
    case 'requested':
      return { reason: 'DELETED', message: 'The sandbox was deleted.' };
    case 'guest-shutdown':
      return {
        reason: 'GUEST_SHUTDOWN',
        message: `The sandbox shut itself down from inside: ${end.detail}.`,
      };
    case 'guest-panic':
      if (memoryPanic.test(end.detail))
        return {
          reason: 'OOM_KILLED',
          message: `The sandbox ran out of its own memory, with nothing left that its kernel could end (${end.detail}). Start a new sandbox with a larger memory_gb.`,
        };
      return {
        reason: 'GUEST_PANIC',
        message: `The kernel of the sandbox panicked: ${end.detail}. Start a new sandbox; if it repeats, give it more memory.`,
      };
    case 'host-out-of-memory':
      return {
        reason: 'HOST_OUT_OF_MEMORY',
        message:
          'The host ran out of memory and ended the machine. Lower --memory-overcommit or run fewer sandboxes.',
      };
    case 'killed':
      return { reason: 'MACHINE_ENDED', message: `It was not ended by us: ${end.detail}.` };
    case 'found-gone':
      return {
        reason: 'MACHINE_ENDED',
        message: `The machine was gone when the node agent came back (${end.detail}).`,
      };
    case 'vmm-error':
      return { reason: 'MACHINE_ENDED', message: `The machine's process failed: ${end.detail}` };
  }
}

const pullCodes = new Set([
  'not-found',
  'unauthorized',
  'unreachable',
  'rate-limited',
  'insecure-registry',
  'invalid-reference',
  'truncated',
]);

/** Why a start of a sandbox with this image failed. */
export function causeOfStartError(error: unknown, image: string): EndCause {
  if (error instanceof MachineEndedError) return causeOfMachineEnd(error.end);
  if (error instanceof GuestCallError && error.code === 'ENOINIT')
    return {
      reason: 'INIT_NOT_FOUND',
      message: `The image ${image} cannot be started with an init of its own: ${error.message}. Use an image that has one (Debian: package systemd-sysv), or create the sandbox without init.`,
    };
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof DamagedFileError || (error instanceof VmmError && error.code === 'bad-snapshot'))
    return {
      reason: 'CHECKPOINT_INVALID',
      message: `The checkpoint cannot be restored: ${message}. Use another one.`,
    };
  if (error instanceof ViewRefusedError) return { reason: 'VIEW_INVALID', message };
  if (!(error instanceof ImageError))
    return { reason: 'START_FAILED', message: `The sandbox could not be started: ${message}` };
  // The store speaks of layers and registries; the user knows the image.
  const named = message.includes(image) ? message : `The image ${image} cannot be used: ${message}`;
  if (error.code === 'no-space') return { reason: 'START_FAILED', message: named };
  return { reason: pullCodes.has(error.code) ? 'IMAGE_PULL_FAILED' : 'IMAGE_INVALID', message: named };
}

/** Whether a sandbox that ended so has failed. */
export function isFailure(reason: EndReason): boolean {
  return !['DELETED', 'TIMEOUT', 'IDLE_TIMEOUT', 'GUEST_SHUTDOWN'].includes(reason);
}

/** Why a sandbox is ended by its own limits. */
export function timeoutCause(reason: 'TIMEOUT' | 'IDLE_TIMEOUT', spec: NodeSandboxSpec): EndCause {
  if (reason === 'TIMEOUT')
    return { reason, message: 'The sandbox reached the end of its lifetime (timeout_minutes).' };
  const minutes = Math.round((spec.idleTimeoutMs ?? 0) / 60_000);
  return { reason, message: `The sandbox was not used for ${minutes} minutes (idle_timeout_minutes).` };
}
