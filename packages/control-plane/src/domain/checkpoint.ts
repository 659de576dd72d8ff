/**
 * The record of a checkpoint and its states. Pure. What may happen to one is decided here; `app/checkpoints.ts` carries it out
 * and `docs/state-machines.md` is written after it. A checkpoint outlives its sandbox, so it has all that a create needs.
 */
import type { CheckpointConsistency, EgressPolicy, NodeCheckpoint } from '@sandlot/protocol';
import type { SandboxRequest, Shape } from './record.js';

/**
 * pending: its node saves. frozen: the instant is taken, files are brought to the disk for good. durable: it can be restored.
 * failed: nothing is left but the reason. deleting: its node is to forget it.
 */
export type CheckpointState = 'pending' | 'frozen' | 'durable' | 'failed' | 'deleting';

/** A checkpoint. Times are milliseconds since 1970. */
export interface CheckpointRecord {
  id: string;
  sandboxId: string;
  ownerId: string;
  teamId: string | null;
  nodeId: string;
  state: CheckpointState;
  /** The one that its sandbox had made, began with or went back to before. */
  parentId: string | null;
  depth: number;
  withMemory: boolean;
  /** As the sandbox was asked for, and what it had. */
  request: SandboxRequest;
  shape: Shape;
  egress: EgressPolicy;
  imageDigest: string | null;
  consistency: CheckpointConsistency | null;
  diskBytes: number | null;
  ownBytes: number | null;
  sharedBytes: number | null;
  error: string | null;
  createdAt: number;
  updatedAt: number;
  expiresAt: number | null;
}

/** A failed record is kept so long. */
export const failedRetentionMs = 7 * 24 * 60 * 60_000;

const next: Readonly<Record<CheckpointState, readonly CheckpointState[]>> = {
  pending: ['frozen', 'durable', 'failed'],
  frozen: ['durable', 'failed', 'deleting'],
  durable: ['failed', 'deleting'],
  failed: ['deleting'],
  deleting: [],
};

/** Moves one to a state; undefined when that is refused. */
export function moveCheckpoint(
  record: CheckpointRecord,
  state: CheckpointState,
  now: number,
  patch: Partial<Pick<CheckpointRecord, 'error' | 'ownBytes' | 'sharedBytes'>> = {},
): CheckpointRecord | undefined {
  if (!next[record.state].includes(state)) return undefined;
  return { ...record, ...patch, state, updatedAt: now };
}

/** What its node says of it as a record; undefined when nothing is new. */
export function withFacts(
  record: CheckpointRecord,
  { consistency, diskBytes, ownBytes, sharedBytes, durable }: NodeCheckpoint,
  now: number,
): CheckpointRecord | undefined {
  const facts = { consistency, diskBytes, ownBytes, sharedBytes };
  const reached = durable ? 'durable' : 'frozen';
  const moved = moveCheckpoint(record, reached, now);
  if (moved) return { ...moved, ...facts };
  const isNew = (Object.keys(facts) as (keyof typeof facts)[]).some((key) => record[key] !== facts[key]);
  return isNew ? { ...record, ...facts } : undefined;
}

/** Its time is over. */
export function isExpired({ expiresAt, state }: CheckpointRecord, now: number): boolean {
  return expiresAt !== null && now >= expiresAt && state !== 'pending' && state !== 'deleting';
}
