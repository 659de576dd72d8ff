/**
 * `POST /sandbox/{id}/pause` and `/resume`. A pause is recorded before its node is told; how a resume begins is in
 * `resumes.ts`. If we die in between, the node's reports and reconcile find out what became of it.
 */
import type { Sandbox } from '@sandlot/protocol';
import type { SandboxRecord } from '../domain/record.js';
import { isEnded } from '../domain/states.js';
import { transition } from '../domain/transition.js';
import { NodeRefusedError } from '../nodes/node-error.js';
import { findSandbox } from '../store/sandboxes.js';
import { AppError } from './app-error.js';
import type { AppContext, Caller } from './context.js';
import { fromNode } from './node-failure.js';
import { presentSandbox } from './present-sandbox.js';
import { requireSandbox } from './read-sandbox.js';

/** How long an answer waits for the new machine; what takes longer goes on. */
const waitMs = 60_000;

/** Pauses a running sandbox; one that is paused is answered alike. */
export async function pauseSandbox(app: AppContext, caller: Caller, id: string): Promise<Sandbox> {
  await requireSandbox(app, caller.actor, id);
  const change = await app.store.change(id, (record) => {
    if (record.state === 'paused' || record.state === 'pausing') return undefined;
    const pausing = transition(record, 'pause', app.now());
    if (pausing === undefined) throw wrongState(record, 'be paused', 'Only a running sandbox can.');
    return pausing;
  });
  if (change !== undefined)
    app.log.info({ sandboxId: id, userId: caller.actor.userId }, 'sandbox is to be paused');
  await fromNode(`pause sandbox ${id}`, () => pauseOnNode(app, caller, id));
  return presentSandbox(app, caller, await requireSandbox(app, caller.actor, id));
}

async function pauseOnNode(app: AppContext, caller: Caller, id: string): Promise<void> {
  try {
    await app.lifecycle.pause(id, caller.requestId);
  } catch (error) {
    // It runs on there, and may have said so before we asked.
    if (error instanceof NodeRefusedError)
      await app.store.change(id, (record) =>
        record.state === 'pausing' ? transition(record, 'ran', app.now()) : undefined,
      );
    throw error;
  }
}

/** Resumes a paused sandbox; one that runs is answered alike. */
export async function resumeSandbox(app: AppContext, caller: Caller, id: string): Promise<Sandbox> {
  await requireSandbox(app, caller.actor, id);
  const outcome = await app.resumes.resume(id, caller.requestId);
  const record = (await findSandbox(app.store.db, id)) as SandboxRecord;
  if (outcome === 'no-room')
    throw new AppError(
      'CONFLICT',
      `There is no room for sandbox ${id} on its node at the moment: delete or pause others, then resume it again.`,
    );
  if (outcome === 'node-away')
    throw new AppError(
      'NODE_UNAVAILABLE',
      `Sandbox ${id} cannot be resumed now: its node cannot be reached. Try again in a moment.`,
    );
  if (outcome === 'wrong-state' && record.state !== 'running')
    throw wrongState(record, 'be resumed', 'Only a paused sandbox can.');
  const { generation } = record;
  const settled = (current: SandboxRecord) =>
    current.state === 'running' || current.state === 'paused' || isEnded(current.state);
  const after = (await app.hub.wait(id, waitMs, settled, caller.signal)) ?? record;
  // Refused by its node, it is of the generation before.
  if (after.state === 'paused' && after.generation <= generation)
    throw new AppError(
      'NODE_ERROR',
      `Sandbox ${id} could not be resumed and is still paused: ${after.message ?? 'its node gave no reason'}`,
    );
  if (isEnded(after.state) || after.state === 'stopping')
    throw new AppError(
      after.state === 'failed' ? 'NODE_ERROR' : 'CONFLICT',
      `Sandbox ${id} does not run: ${after.message ?? after.reason ?? 'it has ended'}`,
    );
  return presentSandbox(app, caller, after);
}

function wrongState({ id, state }: SandboxRecord, what: string, who: string): AppError {
  return new AppError('CONFLICT', `Sandbox ${id} cannot ${what}: it is ${state}. ${who}`);
}
