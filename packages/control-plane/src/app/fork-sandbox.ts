/**
 * `POST /sandbox/{id}/fork`. One transaction adds the records of all copies and books their room, on the node of their
 * source; then that node saves the source and starts them. All or none, unless the caller wants those that run.
 * If we die in between, copies that the node does not know end as START_FAILED, and those that it does go on.
 */
import type { ForkedSandboxes, ForkSandbox } from '@sandlot/protocol';
import { nothingYet, type SandboxRecord } from '../domain/record.js';
import { isEnded } from '../domain/states.js';
import { requestStop } from '../domain/transition.js';
import { planQueue } from '../scheduler/queue.js';
import type { Db } from '../store/database.js';
import { findRepetition, insertRepetition } from '../store/idempotency.js';
import { findSandboxes, insertSandbox } from '../store/sandboxes.js';
import { AppError, invalidRequest } from './app-error.js';
import { mapBounded } from './bounded.js';
import type { AppContext, Caller } from './context.js';
import { hashBody } from './create-sandbox.js';
import { placed } from './dispatch.js';
import { newId } from './ids.js';
import { nodeFailure } from './node-failure.js';
import { presentSandboxes } from './present-sandbox.js';
import { isSettled, requireSandbox } from './read-sandbox.js';
import { environmentIssues } from './validate-create.js';

/** How long an answer waits until the copies run. */
const waitMs = 180_000;
const waitsAtOnce = 64;

/** The copies that were asked for: those with a record, and how many had no room. */
interface Made {
  ids: string[];
  withoutRoom: number;
  fresh: boolean;
}

type ForkError = ForkedSandboxes['errors'][number];

/** Forks. */
export async function forkSandbox(
  app: AppContext,
  caller: Caller,
  id: string,
  body: ForkSandbox,
): Promise<ForkedSandboxes> {
  const issues = environmentIssues(body);
  if (body.timeout_minutes === 0)
    issues.push({ param: 'timeout_minutes', details: 'Must be 1 to 525600, or negative for no limit.' });
  if (issues.length > 0) throw invalidRequest(issues);
  const source = await requireSandbox(app, caller.actor, id);
  // Before the transaction: a read beside it would wait for it.
  const secrets = await app.store.readSecrets(source.id);
  const made = await app.store.transaction((db) => addCopies(app, db, caller, { source, secrets }, body));
  if (made.fresh) {
    app.log.info({ sandboxId: id, userId: caller.actor.userId, copies: made.ids }, 'sandbox is forked');
    await startCopies(app, caller, source, made.ids);
  }
  return answer(app, caller, made, body.allow_partial ?? false);
}

async function addCopies(
  app: AppContext,
  db: Db,
  caller: Caller,
  { source, secrets }: { source: SandboxRecord; secrets: Record<string, string> },
  body: ForkSandbox,
): Promise<Made> {
  const { userId } = caller.actor;
  const { count = 1, idempotency_key: key } = body;
  const bodyHash = hashBody({ ...body, ...{ source: source.id } });
  const repeated = key === undefined ? [] : await findCopies(db, userId, key, count, bodyHash);
  if (repeated.length > 0) return { ids: repeated, withoutRoom: count - repeated.length, fresh: false };
  if (source.state !== 'running')
    throw new AppError(
      'CONFLICT',
      `Sandbox ${source.id} cannot be forked: it is ${source.state}. Only a running sandbox can.`,
    );
  const wanted = Array.from({ length: count }, () => newCopy(caller, source, body, app.now()));
  const nodes = (await app.dispatcher.snapshot(db)).filter(({ nodeId }) => nodeId === source.nodeId);
  if (!nodes.some(({ reachable }) => reachable))
    throw new AppError(
      'NODE_UNAVAILABLE',
      `Sandbox ${source.id} cannot be forked now: its node cannot be reached. Try again in a moment.`,
    );
  const { placed: fitting } = planQueue(wanted, nodes);
  if (fitting.length < count && !(body.allow_partial && fitting.length > 0))
    throw new AppError(
      'CONFLICT',
      `There is room for ${fitting.length} copies of sandbox ${source.id} on its node, not for ${count}. Delete or pause others, ask for fewer, or set allow_partial.`,
    );
  const ids: string[] = [];
  for (const [index, { id, nodeId }] of fitting.entries()) {
    const copy = wanted.find((one) => one.id === id) as SandboxRecord;
    const record = placed(copy, nodeId, app.now());
    await insertSandbox(db, record, app.store.sealSecrets(record.id, secrets), app.now());
    await app.dispatcher.book(db, record);
    if (key !== undefined)
      await insertRepetition(db, userId, keyOf(key, index), { sandboxId: record.id, bodyHash });
    ids.push(record.id);
  }
  return { ids, withoutRoom: count - ids.length, fresh: true };
}

/** Ids that the same key has made before. */
async function findCopies(
  db: Db,
  userId: string,
  key: string,
  count: number,
  bodyHash: string,
): Promise<string[]> {
  const ids: string[] = [];
  for (let index = 0; index < count; index++) {
    const found = await findRepetition(db, userId, keyOf(key, index));
    if (found === undefined) break;
    if (found.bodyHash !== bodyHash)
      throw new AppError('IDEMPOTENCY_MISMATCH', 'The idempotency key was used before, for another request.');
    ids.push(found.sandboxId);
  }
  return ids;
}

function keyOf(key: string, index: number): string {
  return `fork ${key} ${index}`;
}

/** As its source was asked for, but for what the fork says otherwise. */
function newCopy({ actor }: Caller, source: SandboxRecord, body: ForkSandbox, now: number): SandboxRecord {
  const { request } = source;
  const { beginsWith: _, rollback: __, ...rest } = source;
  return {
    ...rest,
    id: newId(),
    forkOf: source.id,
    ownerId: actor.userId,
    labels: [...new Set(body.labels ?? source.labels)],
    request: {
      ...request,
      name: body.name ?? request.name,
      timeoutMinutes: body.timeout_minutes ?? request.timeoutMinutes,
      environmentVars: { ...request.environmentVars, ...body.environment_vars },
    },
    ...nothingYet(now),
  };
}

async function startCopies(
  app: AppContext,
  caller: Caller,
  source: SandboxRecord,
  ids: readonly string[],
): Promise<void> {
  try {
    await app.lifecycle.fork(source, ids, caller.requestId);
  } catch (cause) {
    const failure = nodeFailure(`fork sandbox ${source.id}`, cause);
    const message = failure instanceof Error ? failure.message : String(failure);
    for (const id of ids) await endCopy(app, id, 'START_FAILED', message);
    throw failure;
  }
}

async function endCopy(
  app: AppContext,
  id: string,
  reason: 'START_FAILED' | 'DELETED',
  message: string,
): Promise<void> {
  await app.store.change(id, (record) => requestStop(record, reason, app.now(), { message }));
  void app.lifecycle.remove(id).then(() => app.dispatcher.kick());
}

async function answer(
  app: AppContext,
  caller: Caller,
  { ids, withoutRoom }: Made,
  allowPartial: boolean,
): Promise<ForkedSandboxes> {
  const enough = (record: SandboxRecord) => isSettled(record, app.now());
  await mapBounded(ids, waitsAtOnce, (id) => app.hub.wait(id, waitMs, enough, caller.signal));
  const found = await findSandboxes(app.store.db, ids);
  const records = ids.flatMap((id) => found.get(id) ?? []);
  const hasFailed = (record: SandboxRecord) => isEnded(record.state) || record.state === 'stopping';
  const failed = records.filter(hasFailed);
  if (failed[0] && !allowPartial) {
    for (const { id } of records)
      await endCopy(app, id, 'DELETED', 'Another copy of the same fork could not be started.');
    throw new AppError(
      'NODE_ERROR',
      `${failed.length} of ${ids.length} copies could not be started, so there is none: ${whyOf(failed[0])}`,
    );
  }
  const errors: ForkError[] = failed.map((record) => ({
    index: ids.indexOf(record.id),
    code: record.reason ?? 'START_FAILED',
    message: whyOf(record),
  }));
  for (let index = ids.length; index < ids.length + withoutRoom; index++)
    errors.push({ index, code: 'CAPACITY', message: 'There was no room for it on the node of its source.' });
  const running = records.filter((record) => !hasFailed(record));
  return { sandboxes: await presentSandboxes(app, caller, running), errors };
}

function whyOf({ id, message, reason }: SandboxRecord): string {
  return `${id}: ${message ?? reason ?? 'no reason is known'}`;
}
