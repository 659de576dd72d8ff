/**
 * `DELETE /sandbox/{id}` and the bulk delete. A delete is recorded first, and holds from then on,
 * whatever the start does; the answer waits some time for the node to be done. If we die in
 * between, reconcile repeats the command to the node.
 */
import { activeStatuses, type BulkDelete, type BulkDeleted, type Done } from '@sandlot/protocol';
import { type Actor, mayManageTeam, maySee } from '../domain/access.js';
import type { SandboxRecord } from '../domain/record.js';
import { isEnded } from '../domain/states.js';
import { requestStop } from '../domain/transition.js';
import { findSandboxes, findSandboxIds, type SandboxFilter } from '../store/sandboxes.js';
import { requireTeam } from './accounts.js';
import { AppError, sandboxNotFound } from './app-error.js';
import { atMost, mapBounded } from './bounded.js';
import type { AppContext, Caller } from './context.js';

/** How long an answer waits for the nodes. */
const waitOneMs = 15_000;
const waitManyMs = 45_000;

/** Sandboxes removed at once by one bulk delete. */
const removesAtOnce = 32;

const maxBulk = 10_000;

/** Deletes one. */
export async function deleteSandbox(app: AppContext, caller: Caller, id: string): Promise<Done> {
  if (!(await markDeleted(app, caller.actor, id))) throw sandboxNotFound(id);
  const done = atMost(
    remove(app, id, caller.requestId).then(() => true),
    waitOneMs,
  );
  const message = (await done)
    ? 'The sandbox was deleted.'
    : 'The sandbox is being deleted; its node is slow to answer.';
  return { success: true, message };
}

/** Deletes many. */
export async function bulkDelete(app: AppContext, caller: Caller, body: BulkDelete): Promise<BulkDeleted> {
  const { actor, requestId } = caller;
  const ids =
    body.sandbox_ids === undefined ? await selectIds(app, actor, body) : [...new Set(body.sandbox_ids)];
  const answer: BulkDeleted = { succeeded: [], failed: [], message: '' };
  for (const id of ids) {
    if (await markDeleted(app, actor, id)) answer.succeeded.push(id);
    else if (body.sandbox_ids !== undefined)
      answer.failed.push({ sandbox_id: id, error: `There is no sandbox ${id} for this key.` });
  }
  await atMost(
    mapBounded(answer.succeeded, removesAtOnce, (id) => remove(app, id, requestId)),
    waitManyMs,
  );
  const { length } = answer.succeeded;
  answer.message = `${length} sandbox${length === 1 ? '' : 'es'} deleted, ${answer.failed.length} not found.`;
  return answer;
}

/** Records that it is to go; false when there is nothing to delete for this actor. */
async function markDeleted(app: AppContext, actor: Actor, id: string): Promise<boolean> {
  const now = app.now();
  const change = await app.store.change(id, (record) => {
    if (!maySee(actor, record) || record.deletedAt !== null) return undefined;
    if (isEnded(record.state) || record.state === 'stopping')
      return { ...record, deletedAt: now, updatedAt: now };
    return requestStop(record, 'DELETED', now, { deletedAt: now });
  });
  if (change === undefined) return false;
  app.log.info({ sandboxId: id, userId: actor.userId, from: change.before.state }, 'sandbox deleted');
  return true;
}

async function remove(app: AppContext, id: string, requestId: string): Promise<void> {
  await app.lifecycle.remove(id, requestId);
  // Its place in the queue, or its room, is free.
  app.dispatcher.kick();
}

/** Live sandboxes that labels, team and user select; never somebody else's without the right to it. */
async function selectIds(app: AppContext, actor: Actor, body: BulkDelete): Promise<string[]> {
  const team = body.team_id === undefined ? undefined : await requireTeam(app.store.db, actor, body.team_id);
  const filter: SandboxFilter = {
    ...ownership(actor, body, team?.id),
    ...(body.labels === undefined ? {} : { labels: body.labels }),
    statuses: [...activeStatuses, 'ERROR'],
  };
  const ids = await findSandboxIds(app.store.db, filter, maxBulk);
  const records = await findSandboxes(app.store.db, ids);
  return ids.filter((id) => isLive(records.get(id)));
}

function isLive(record: SandboxRecord | undefined): boolean {
  return record !== undefined && record.deletedAt === null && !isEnded(record.state);
}

function ownership(actor: Actor, body: BulkDelete, teamId: string | undefined): SandboxFilter {
  const { user_id: userId, all_users: allUsers = false } = body;
  const team = teamId === undefined ? {} : { teamId };
  const manages = teamId === undefined ? actor.isAdmin : mayManageTeam(actor, teamId);
  if (allUsers) {
    if (!manages)
      throw new AppError(
        'FORBIDDEN',
        'Only an admin may delete the sandboxes of all users. Leave all_users out to delete your own.',
      );
    return team;
  }
  if (userId !== undefined && userId !== actor.userId && !manages)
    throw new AppError(
      'FORBIDDEN',
      `Only an admin may delete the sandboxes of user ${userId}. Leave user_id out to delete your own.`,
    );
  return { ...team, ownerId: userId ?? actor.userId };
}
