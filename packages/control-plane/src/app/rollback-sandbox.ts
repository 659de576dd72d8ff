/**
 * `POST /sandbox/{id}/rollback`. What the checkpoint is made of is read and compared before anything changes; then the generation is
 * raised, and its node ends the old machine and makes another. How that begins is in `resumes.ts`, also if we die in between.
 */
import type { RollbackSandbox, Sandbox } from '@sandlot/protocol';
import type { CheckpointRecord } from '../domain/checkpoint.js';
import type { SandboxRecord } from '../domain/record.js';
import { isEnded } from '../domain/states.js';
import { findSandbox } from '../store/sandboxes.js';
import { AppError } from './app-error.js';
import { requireCheckpoint } from './checkpoints.js';
import type { AppContext, Caller } from './context.js';
import { requireRestorable } from './create-from-checkpoint.js';
import { presentSandbox } from './present-sandbox.js';
import { requireSandbox } from './read-sandbox.js';

/** How long an answer waits for the new machine; what takes longer goes on. */
const waitMs = 120_000;

/** Rolls back; answered when the sandbox runs. */
export async function rollbackSandbox(
  app: AppContext,
  caller: Caller,
  id: string,
  { checkpoint_id: checkpointId, restore_memory: asked }: RollbackSandbox,
): Promise<Sandbox> {
  const before = await requireSandbox(app, caller.actor, id);
  const checkpoint = await requireCheckpoint(app, caller.actor, checkpointId);
  const memory = asked ?? checkpoint.withMemory;
  requireOwn(before, checkpoint, memory);
  requireState(before);
  await requireRestorable(app, caller, checkpoint, memory, false);
  const point = { id: checkpointId, memory, depth: checkpoint.depth };
  const outcome = await app.resumes.rollBack(id, point, caller.requestId);
  const record = (await findSandbox(app.store.db, id)) as SandboxRecord;
  if (outcome === 'no-room')
    throw new AppError(
      'CONFLICT',
      `There is no room for sandbox ${id} on its node at the moment: delete or pause others, then try again.`,
    );
  if (outcome === 'node-away')
    throw new AppError(
      'NODE_UNAVAILABLE',
      `Sandbox ${id} cannot be rolled back now: its node cannot be reached. Try again in a moment.`,
    );
  if (outcome === 'wrong-state') throw wrongState(record);
  app.log.info({ sandboxId: id, checkpointId, userId: caller.actor.userId }, 'sandbox is rolled back');
  const { generation } = record;
  const settled = (current: SandboxRecord) =>
    current.state === 'running' || current.generation !== generation || isEnded(current.state);
  const after = (await app.hub.wait(id, waitMs, settled, caller.signal)) ?? record;
  if (after.generation < generation)
    throw new AppError(
      'CONFLICT',
      `Sandbox ${id} could not be rolled back and is as it was: ${after.message ?? 'its node gave no reason'}`,
    );
  if (isEnded(after.state))
    throw new AppError(
      'NODE_ERROR',
      `Sandbox ${id} could not be rolled back, and has ended: ${after.message ?? after.reason}`,
    );
  return presentSandbox(app, caller, after);
}

/** Its own checkpoints, and the one that it was made from: others are of another sandbox, and make a new one. */
function requireOwn(sandbox: SandboxRecord, checkpoint: CheckpointRecord, memory: boolean): void {
  if (checkpoint.sandboxId !== sandbox.id && sandbox.beginsWith?.id !== checkpoint.id)
    throw new AppError(
      'CONFLICT',
      `Checkpoint ${checkpoint.id} is of sandbox ${checkpoint.sandboxId}, and ${sandbox.id} did not begin with it. Create a new sandbox with it instead.`,
    );
  const { vcpus, memoryMiB } = checkpoint.shape;
  if (memory && (vcpus !== sandbox.shape.vcpus || memoryMiB !== sandbox.shape.memoryMiB))
    throw new AppError(
      'CONFLICT',
      `Sandbox ${sandbox.id} has another shape than the memory of checkpoint ${checkpoint.id} (${vcpus} vCPU, ${memoryMiB} MiB). Roll back its disk alone: restore_memory false.`,
    );
}

function requireState(record: SandboxRecord): void {
  if (record.state !== 'running' && record.state !== 'paused') throw wrongState(record);
}

function wrongState({ id, state }: SandboxRecord): AppError {
  return new AppError(
    'CONFLICT',
    `Sandbox ${id} cannot be rolled back: it is ${state}. Only one that runs or is paused can.`,
  );
}
