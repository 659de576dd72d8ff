/** Reads of single sandboxes: get, error-context, auth, logs, and statuses of many. */
import type {
  AuthorizeSandbox,
  BatchStatus,
  ErrorContext,
  GatewayAuth,
  Sandbox,
  SandboxLogs,
} from '@sandlot/protocol';
import { type Actor, maySee } from '../domain/access.js';
import type { SandboxRecord } from '../domain/record.js';
import { wireError, wireStatus } from '../domain/wire-status.js';
import { findSandbox, findSandboxes } from '../store/sandboxes.js';
import { AppError, invalidRequest, sandboxNotFound } from './app-error.js';
import type { AppContext, Caller } from './context.js';
import { fromNode } from './node-failure.js';
import { presentSandbox } from './present-sandbox.js';

/** The record, if the actor may see it; otherwise it does not exist. */
export async function requireSandbox(app: AppContext, actor: Actor, id: string): Promise<SandboxRecord> {
  const record = await findSandbox(app.store.db, id);
  if (record === undefined || !maySee(actor, record)) throw sandboxNotFound(id);
  return record;
}

/** True when waiting for it makes no sense any more: it runs, or has ended. */
export function isSettled(record: SandboxRecord, now: number): boolean {
  const status = wireStatus(record, now);
  return status !== 'PENDING' && status !== 'PROVISIONING';
}

/** `GET /sandbox/{id}`, answered when it runs or has ended, or after the time asked for. */
export async function getSandbox(
  app: AppContext,
  caller: Caller,
  id: string,
  waitSeconds: number | undefined,
): Promise<Sandbox> {
  let record = await requireSandbox(app, caller.actor, id);
  if (waitSeconds !== undefined && waitSeconds > 0 && !isSettled(record, app.now())) {
    const enough = (current: SandboxRecord) => isSettled(current, app.now());
    record = (await app.hub.wait(id, waitSeconds * 1000, enough, caller.signal)) ?? record;
  }
  return presentSandbox(app, caller, record);
}

/** `GET /sandbox/{id}/error-context`. */
export async function getErrorContext(app: AppContext, actor: Actor, id: string): Promise<ErrorContext> {
  const record = await requireSandbox(app, actor, id);
  const now = app.now();
  const status = wireStatus(record, now);
  const error = wireError(record, now);
  // A client whose first command fails asks here why: an image without a shell is such a reason.
  if (status === 'RUNNING' && record.warnings.length > 0)
    return { status, ...error, errorMessage: record.warnings.join(' ') };
  return { status, ...error };
}

/** `POST /sandbox/{id}/auth`. */
export async function authorizeSandbox(
  app: AppContext,
  caller: Caller,
  id: string,
  { in_view: inView = false }: AuthorizeSandbox,
): Promise<GatewayAuth> {
  const record = await requireSandbox(app, caller.actor, id);
  if (inView && record.request.view === undefined)
    throw invalidRequest([
      {
        param: 'in_view',
        details: `Sandbox ${id} has no default view: create one with \`view\`, or ask without in_view.`,
      },
    ]);
  return app.tokens.authorize(record, caller.publicOrigin, inView);
}

/** `GET /sandbox/{id}/logs`: from the node while it lives there, from the record afterwards. */
export async function getLogs(app: AppContext, caller: Caller, id: string): Promise<SandboxLogs> {
  const record = await requireSandbox(app, caller.actor, id);
  const { request, nodeId } = record;
  const starts = request.startCommand !== null || request.entrypoint;
  if (record.endedAt !== null || !starts || nodeId === null || record.startedAt === null)
    return { logs: record.logTail ?? '' };
  try {
    return {
      logs: await fromNode('read the logs', () => app.fleet.client(nodeId, caller.requestId).logs(id)),
    };
  } catch (error) {
    // It is just ending there: what the record has is all that is left.
    if (error instanceof AppError && error.code === 'NOT_FOUND') return { logs: record.logTail ?? '' };
    throw error;
  }
}

/** `POST /sandbox/status:batchGet`. */
export async function batchGetStatus(
  app: AppContext,
  actor: Actor,
  ids: readonly string[],
): Promise<BatchStatus> {
  const found = await findSandboxes(app.store.db, ids);
  const answer: BatchStatus = { statuses: [], errors: [] };
  const now = app.now();
  for (const id of ids) {
    const record = found.get(id);
    if (record === undefined || !maySee(actor, record)) {
      answer.errors.push({
        sandbox_id: id,
        code: 'NOT_FOUND',
        message: `There is no sandbox ${id} for this key.`,
      });
      continue;
    }
    const { errorType, errorMessage } = wireError(record, now);
    answer.statuses.push({
      sandbox_id: id,
      status: wireStatus(record, now),
      error_type: errorType,
      error_message: errorMessage,
      pending_image_build_id: record.state === 'pending' ? record.imageBuildId : null,
    });
  }
  return answer;
}
