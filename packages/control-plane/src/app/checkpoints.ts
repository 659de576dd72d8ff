/** Checkpoints at the API: made, read, listed, deleted. What is done at the node is in `checkpoint-work.ts`. */
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  BatchCheckpoints,
  Checkpoint,
  CheckpointList,
  CreateCheckpoint,
  DeletedCheckpoints,
  Done,
  ListAllCheckpointsQuery,
} from '@sandlot/protocol';
import { type Actor, maySee } from '../domain/access.js';
import { type CheckpointRecord, isExpired, moveCheckpoint } from '../domain/checkpoint.js';
import type { SandboxRecord } from '../domain/record.js';
import {
  countCheckpoints,
  findCheckpoint,
  findCheckpoints,
  findCheckpointsOf,
  findVisibleCheckpoints,
  insertCheckpoint,
} from '../store/checkpoints.js';
import { findSandbox } from '../store/sandboxes.js';
import { AppError, sandboxNotFound } from './app-error.js';
import { atMost } from './bounded.js';
import type { AppContext, Caller } from './context.js';
import { newId } from './ids.js';
import { nodeFailure } from './node-failure.js';
import { requireSandbox } from './read-sandbox.js';

/** How long an answer to a create waits for the instant; afterwards it is PENDING. */
const takeMs = 45_000;
const removeMs = 15_000;
const pollMs = 50;
/** Most that one user has. */
const maxOfUser = 10_000;

/** `POST /sandbox/{id}/checkpoints`. Answered when the instant is taken: what is done afterwards is not in it. */
export async function createCheckpoint(
  app: AppContext,
  caller: Caller,
  sandboxId: string,
  body: CreateCheckpoint,
): Promise<Checkpoint> {
  const { userId } = caller.actor;
  const source = await requireSandbox(app, caller.actor, sandboxId);
  // One that is being paused is saved when it is.
  if (!['running', 'pausing', 'paused'].includes(source.state) || source.nodeId === null)
    throw new AppError(
      'CONFLICT',
      `Sandbox ${sandboxId} cannot be saved: it is ${source.state}. Only a running or a paused sandbox can.`,
    );
  if (!(app.fleet.link(source.nodeId)?.connected ?? false))
    throw new AppError(
      'NODE_UNAVAILABLE',
      `Sandbox ${sandboxId} cannot be saved now: its node cannot be reached. Try again in a moment.`,
    );
  if ((await countCheckpoints(app.store.db, userId)) >= maxOfUser)
    throw new AppError(
      'CONFLICT',
      `You have ${maxOfUser} checkpoints, which is the most. Delete some, or give them a ttl_seconds.`,
    );
  const secrets = await app.store.readSecrets(sandboxId);
  const record = newCheckpoint(source, source.nodeId, userId, body, app.now());
  const sealed = app.store.sealSecrets(record.id, secrets);
  const insert = () => insertCheckpoint(app.store.db, record, sealed);
  app.log.info({ checkpointId: record.id, sandboxId, userId, memory: record.withMemory }, 'checkpoint begun');
  const making = app.checkpoints.make(record, insert, source.generation, caller.requestId);
  // Its failure is heard also when nobody waits any more.
  making.catch(() => undefined);
  try {
    await atMost(making, takeMs);
  } catch (cause) {
    throw nodeFailure(`save sandbox ${sandboxId}`, cause);
  }
  return present((await findCheckpoint(app.store.db, record.id)) ?? record);
}

function newCheckpoint(
  source: SandboxRecord,
  nodeId: string,
  ownerId: string,
  { ttl_seconds: ttl, with_memory: withMemory = false }: CreateCheckpoint,
  now: number,
): CheckpointRecord {
  const { tip, teamId, request, shape, egress, imageDigest } = source;
  return {
    id: newId(),
    sandboxId: source.id,
    // In a team whoever makes it counts; else it is the sandbox's owner's, also when an admin makes it.
    ownerId: teamId === null ? source.ownerId : ownerId,
    teamId,
    nodeId,
    state: 'pending',
    parentId: tip?.id ?? null,
    depth: tip === undefined ? 0 : tip.depth + 1,
    withMemory,
    ...{ request, shape, egress, imageDigest },
    consistency: null,
    diskBytes: null,
    ownBytes: null,
    sharedBytes: null,
    error: null,
    createdAt: now,
    updatedAt: now,
    expiresAt: ttl === undefined ? null : now + ttl * 1000,
  };
}

/** The record, if the actor may see it and its time is not over; otherwise it does not exist. */
export async function requireCheckpoint(
  app: AppContext,
  actor: Actor,
  id: string,
): Promise<CheckpointRecord> {
  const record = await findCheckpoint(app.store.db, id);
  if (record === undefined || !maySee(actor, record) || isExpired(record, app.now()))
    throw new AppError(
      'NOT_FOUND',
      `There is no checkpoint ${id} for this key. \`sandlot checkpoint ls SANDBOX\` lists those of a sandbox.`,
    );
  return record;
}

/** `GET /sandbox/checkpoints/{id}`. */
export async function getCheckpoint(
  app: AppContext,
  caller: Caller,
  id: string,
  waitSeconds = 0,
): Promise<Checkpoint> {
  const until = performance.now() + waitSeconds * 1000;
  let record = await requireCheckpoint(app, caller.actor, id);
  while (isOpen(record) && performance.now() < until && !caller.signal.aborted) {
    await sleep(pollMs, undefined, { signal: caller.signal }).catch(() => undefined);
    record = await requireCheckpoint(app, caller.actor, id);
  }
  return present(await app.checkpoints.refresh(record));
}

/** It will be something else before long. */
function isOpen({ state }: CheckpointRecord): boolean {
  return state === 'pending' || state === 'frozen';
}

/** `GET /sandbox/{id}/checkpoints`: also of a sandbox that is gone. */
export async function listCheckpoints(
  app: AppContext,
  actor: Actor,
  sandboxId: string,
  only: string | undefined,
): Promise<CheckpointList> {
  const found = await visibleOf(app, actor, sandboxId);
  return { checkpoints: found.filter(({ id }) => only === undefined || id === only).map(present) };
}

/** `GET /sandbox/checkpoints`: all that the actor may see. */
export async function listAllCheckpoints(
  app: AppContext,
  actor: Actor,
  { id_prefix: prefix, limit = 1000 }: ListAllCheckpointsQuery,
): Promise<CheckpointList> {
  const visibleTo = actor.isAdmin ? undefined : { userId: actor.userId, teamIds: [...actor.teams.keys()] };
  const now = app.now();
  const found = await findVisibleCheckpoints(app.store.db, { visibleTo, prefix, limit });
  return { checkpoints: found.filter((record) => !isExpired(record, now)).map(present) };
}

async function visibleOf(app: AppContext, actor: Actor, sandboxId: string): Promise<CheckpointRecord[]> {
  const now = app.now();
  const found = (await findCheckpointsOf(app.store.db, sandboxId)).filter(
    (record) => maySee(actor, record) && !isExpired(record, now),
  );
  if (found.length > 0) return found;
  const sandbox = await findSandbox(app.store.db, sandboxId);
  if (sandbox === undefined || !maySee(actor, sandbox)) throw sandboxNotFound(sandboxId);
  return [];
}

/** `POST /sandbox/checkpoints:batchGet`. */
export async function batchGetCheckpoints(
  app: AppContext,
  actor: Actor,
  ids: readonly string[],
): Promise<BatchCheckpoints> {
  const found = await findCheckpoints(app.store.db, ids);
  const now = app.now();
  const answer: BatchCheckpoints = { checkpoints: [], errors: [] };
  for (const id of ids) {
    const record = found.get(id);
    if (record && maySee(actor, record) && !isExpired(record, now)) answer.checkpoints.push(present(record));
    else
      answer.errors.push({
        checkpoint_id: id,
        code: 'NOT_FOUND',
        message: `There is no checkpoint ${id} for this key.`,
      });
  }
  return answer;
}

/** `DELETE /sandbox/checkpoints/{id}`. What was made from it lives on. */
export async function deleteCheckpoint(app: AppContext, caller: Caller, id: string): Promise<Done> {
  const record = await requireCheckpoint(app, caller.actor, id);
  if (!(await markDeleting(app, record))) throw new AppError('CONFLICT', stillPending(record));
  app.log.info({ checkpointId: id, userId: caller.actor.userId }, 'checkpoint deleted');
  await atMost(app.checkpoints.remove(id), removeMs);
  const isGone = (await findCheckpoint(app.store.db, id)) === undefined;
  const message = isGone
    ? 'The checkpoint was deleted.'
    : 'The checkpoint is being deleted; its node is slow to answer.';
  return { success: true, message };
}

/** `DELETE /sandbox/{id}/checkpoints`. */
export async function deleteSandboxCheckpoints(
  app: AppContext,
  caller: Caller,
  sandboxId: string,
): Promise<DeletedCheckpoints> {
  const answer: DeletedCheckpoints = { deleted: [], errors: [] };
  for (const record of await visibleOf(app, caller.actor, sandboxId)) {
    const { id } = record;
    if (await markDeleting(app, record)) answer.deleted.push(id);
    else answer.errors.push({ checkpoint_id: id, code: 'CONFLICT', message: stillPending(record) });
  }
  await atMost(Promise.all(answer.deleted.map((id) => app.checkpoints.remove(id))), removeMs);
  return answer;
}

/** False for one that is being saved at this moment. */
async function markDeleting(app: AppContext, { id }: CheckpointRecord): Promise<boolean> {
  let isMarked = true;
  await app.store.changeCheckpoint(id, (record) => {
    isMarked = record.state !== 'pending';
    return moveCheckpoint(record, 'deleting', app.now());
  });
  return isMarked;
}

function stillPending({ id }: CheckpointRecord): string {
  return `Checkpoint ${id} is being saved at this moment. Delete it when it is DURABLE or FAILED.`;
}

/** From a record to the wire. */
export function present(record: CheckpointRecord): Checkpoint {
  const { ownBytes, sharedBytes } = record;
  const iso = (time: number) => new Date(time).toISOString();
  return {
    id: record.id,
    sandbox_id: record.sandboxId,
    parent_id: record.parentId,
    team_id: record.teamId,
    state: record.state.toUpperCase() as Checkpoint['state'],
    depth: record.depth,
    docker_image: record.request.image,
    disk_size_bytes: record.diskBytes,
    stored_bytes: ownBytes === null || sharedBytes === null ? null : ownBytes + sharedBytes,
    ...(ownBytes === null ? {} : { occupied_bytes: ownBytes }),
    error: record.error,
    created_at: iso(record.createdAt),
    updated_at: iso(record.updatedAt),
    user_id: record.ownerId,
    with_memory: record.withMemory,
    consistency: record.consistency,
    own_bytes: ownBytes,
    shared_bytes: sharedBytes,
    expires_at: record.expiresAt === null ? null : iso(record.expiresAt),
    node_id: record.nodeId,
  };
}
