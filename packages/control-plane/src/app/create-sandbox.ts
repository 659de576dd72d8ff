/**
 * `POST /sandbox`. One transaction checks the idempotency key, adds the record and books room; then
 * the node is told, and the answer waits a moment for its first word. If we die after the
 * transaction, reconcile sends the sandbox to its node.
 */
import { createHash } from 'node:crypto';
import type { CreateSandbox, Sandbox } from '@sandlot/protocol';
import { nothingYet, type SandboxRecord, type SandboxRequest, type Shape } from '../domain/record.js';
import { effectiveShape, memoryStepMiB } from '../domain/shape.js';
import type { Room } from '../scheduler/place.js';
import type { Db } from '../store/database.js';
import { findRepetition, insertRepetition } from '../store/idempotency.js';
import { findSandbox, insertSandbox } from '../store/sandboxes.js';
import { requireTeam } from './accounts.js';
import { AppError, invalidRequest } from './app-error.js';
import type { AppContext, Caller } from './context.js';
import { beginning, completeBody, findOrigin } from './create-from-checkpoint.js';
import { newId } from './ids.js';
import { presentSandbox } from './present-sandbox.js';
import { isSettled } from './read-sandbox.js';
import { type ValidCreate, validateCreate } from './validate-create.js';

/**
 * How long a create without `wait` is held for the node's first word. A cached image runs within it,
 * which saves Prime's clients their first second of polling; an image that must be fetched is known
 * within it, so that `pendingImageBuildId` in the answer tells the truth.
 */
const holdMs = 400;

const fieldOf = { vcpus: 'cpu_cores', memoryMiB: 'memory_gb', diskGiB: 'disk_size_gb' } as const;

/** A valid create, and where its sandbox begins. */
type Beginning = ValidCreate & ReturnType<typeof beginning>;

/** Creates a sandbox, or answers the one that the same idempotency key has made. */
export async function createSandbox(
  app: AppContext,
  caller: Caller,
  given: CreateSandbox,
  waitSeconds: number | undefined,
): Promise<Sandbox> {
  const { actor } = caller;
  const body =
    given.team_id === undefined
      ? given
      : { ...given, team_id: (await requireTeam(app.store.db, actor, given.team_id)).id };
  if (body.checkpoint_id !== undefined) {
    // The checkpoint may be gone by now, and what was made from it lives on.
    const known = await findRepeated(app.store.db, actor.userId, body);
    if (known !== undefined) return answer(app, caller, known, waitSeconds);
  }
  const origin = await findOrigin(app, caller, body);
  const valid = validateCreate(completeBody(body, origin));
  const shape = effectiveShape(valid.request.cpuCores, valid.request.memoryGb, valid.request.diskGb);
  const { id, fresh } = await app.store.transaction(async (db) => {
    const repeated = await findRepeated(db, actor.userId, body);
    if (repeated !== undefined) return { id: repeated, fresh: false };
    const record = await addRecord(app, db, caller, body, { ...valid, ...beginning(origin) }, shape);
    return { id: record.id, fresh: true };
  });
  if (fresh)
    app.log.info({ sandboxId: id, userId: actor.userId, image: valid.request.image }, 'sandbox created');
  void app.lifecycle.start(id, { requestId: caller.requestId });
  return answer(app, caller, id, waitSeconds);
}

/** Id of the sandbox that the key has made; throws when the body is another. */
async function findRepeated(db: Db, userId: string, body: CreateSandbox): Promise<string | undefined> {
  if (body.idempotency_key === undefined) return undefined;
  const found = await findRepetition(db, userId, body.idempotency_key);
  if (found !== undefined && found.bodyHash !== hashBody(body))
    throw new AppError(
      'IDEMPOTENCY_MISMATCH',
      `The idempotency key was used before, for sandbox ${found.sandboxId}, with another body. Use a new key.`,
    );
  return found?.sandboxId;
}

async function addRecord(
  app: AppContext,
  db: Db,
  caller: Caller,
  body: CreateSandbox,
  valid: Beginning,
  shape: Shape,
): Promise<SandboxRecord> {
  const admission = await app.dispatcher.admit(db, newRecord(caller, body, valid, shape, app.now()));
  if ('beyond' in admission) throw tooLarge(admission, valid.request);
  const { record } = admission;
  await insertSandbox(db, record, app.store.sealSecrets(record.id, valid.secrets), app.now());
  await app.dispatcher.book(db, record);
  if (body.idempotency_key !== undefined) {
    const repetition = { sandboxId: record.id, bodyHash: hashBody(body) };
    await insertRepetition(db, caller.actor.userId, body.idempotency_key, repetition);
  }
  return record;
}

/** In the units that were asked, with what there is. */
function tooLarge(
  { beyond, largest }: { beyond: readonly (keyof Room)[]; largest: Room },
  { cpuCores, memoryGb, diskGb }: SandboxRequest,
): AppError {
  // In whole steps: what the text says is there must be accepted.
  const offeredGiB = (Math.floor(largest.memoryMiB / memoryStepMiB) * memoryStepMiB) / 1024;
  const texts = {
    vcpus: `${cpuCores} CPUs is more than any node offers in all (${largest.vcpus}).`,
    memoryMiB: `${memoryGb} GiB is more than any node offers in all (${offeredGiB} GiB).`,
    diskGiB: `${diskGb} GiB is more than any node offers in all (${largest.diskGiB} GiB).`,
  };
  return invalidRequest(beyond.map((kind) => ({ param: fieldOf[kind], details: texts[kind] })));
}

function newRecord(
  { actor }: Caller,
  body: CreateSandbox,
  { request, labels, egress, secrets: _, ...begins }: Beginning,
  shape: Shape,
  now: number,
): SandboxRecord {
  return {
    id: newId(),
    ownerId: actor.userId,
    teamId: body.team_id ?? null,
    labels,
    request,
    shape,
    imageDigest: null,
    exitCode: null,
    egress,
    ...begins,
    ...nothingYet(now),
  };
}

async function answer(
  app: AppContext,
  caller: Caller,
  id: string,
  waitSeconds: number | undefined,
): Promise<Sandbox> {
  const enough = (record: SandboxRecord) =>
    isSettled(record, app.now()) || (waitSeconds === undefined && knowsItsImage(record));
  const ms = waitSeconds === undefined ? holdMs : waitSeconds * 1000;
  const record = (await app.hub.wait(id, ms, enough, caller.signal)) ?? (await findSandbox(app.store.db, id));
  if (record === undefined) throw new Error(`sandbox ${id} vanished while it was created; a bug`);
  const sandbox = await presentSandbox(app, caller, record);
  return { ...sandbox, gatewayAuth: app.tokens.authorize(record, caller.publicOrigin) };
}

/** Nothing more is to be learned by holding: it waits for room, or for its image. */
function knowsItsImage(record: SandboxRecord): boolean {
  return record.state === 'pending' && (record.nodeId === null || record.imageBuildId !== null);
}

/** Hash of a body without its key; the order of fields does not matter. */
export function hashBody({ idempotency_key: _, ...body }: { idempotency_key?: string }): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(body)))
    .digest('hex');
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([key, inner]) => [key, sorted(inner)]),
  );
}
