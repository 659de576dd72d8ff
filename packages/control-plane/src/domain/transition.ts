/**
 * The one function that moves a record between states, and nothing else does. Pure: it takes a
 * record and returns a new one. Callers are the operations in `app/`.
 */
import type { EndReason } from '@sandlot/protocol';
import type { SandboxRecord } from './record.js';
import { isEnded, type SandboxEvent, type SandboxState, sandboxStates } from './states.js';

/** Fields that may change together with a state. */
export type Patch = Partial<
  Omit<
    SandboxRecord,
    'id' | 'ownerId' | 'createdAt' | 'state' | 'stateSince' | 'updatedAt' | 'shape' | 'request'
  >
>;

/** Where an event leads from a state; undefined: it is refused there. */
export function nextState(state: SandboxState, event: SandboxEvent): SandboxState | undefined {
  return sandboxStates[state].next[event];
}

/** Moves a record by an event, or returns undefined when the event is refused in its state. */
export function transition(
  record: SandboxRecord,
  event: SandboxEvent,
  now: number,
  patch: Patch = {},
): SandboxRecord | undefined {
  const state = nextState(record.state, event);
  if (state === undefined) return undefined;
  const moved: SandboxRecord = { ...record, ...patch, state, stateSince: now, updatedAt: now };
  if (isEnded(state)) {
    moved.endedAt = patch.endedAt ?? now;
    moved.stage = null;
    moved.imageBuildId = null;
  }
  assertRecord(moved);
  return moved;
}

/** Moves a record towards its end: straight to it when no node has ever been told, else to stopping. */
export function requestStop(
  record: SandboxRecord,
  reason: EndReason,
  now: number,
  patch: Patch = {},
): SandboxRecord | undefined {
  const why: Patch = { ...patch, reason: record.reason ?? reason };
  if (record.nodeId !== null) return transition(record, 'stop', now, why);
  return transition(record, endsClean(why.reason ?? reason) ? 'stopped' : 'failed', now, why);
}

/** Ends that are no fault lead to `stopped`, others to `failed`. */
export function endsClean(reason: EndReason): boolean {
  return (
    reason === 'DELETED' || reason === 'TIMEOUT' || reason === 'IDLE_TIMEOUT' || reason === 'GUEST_SHUTDOWN'
  );
}

/** Invariants of a record; a breach is a bug of ours. */
function assertRecord(record: SandboxRecord): void {
  const broken =
    (record.generation < 1 && 'generation below 1') ||
    ((record.state === 'running' || record.state === 'paused') &&
      record.nodeId === null &&
      `${record.state} without a node`) ||
    (record.state === 'stopping' && record.reason === null && 'stopping without a reason') ||
    (isEnded(record.state) && record.reason === null && 'ended without a reason') ||
    (isEnded(record.state) !== (record.endedAt !== null) && 'end time and state disagree');
  if (broken) throw new Error(`sandbox ${record.id}: ${broken}; a bug in its transition`);
}
