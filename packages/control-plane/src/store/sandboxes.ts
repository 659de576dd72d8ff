/** Records of sandboxes: read, search, write as a whole. Every function takes a connection or a transaction. */
import type { SandboxStatus } from '@sandlot/protocol';
import { CompiledQuery, type ExpressionBuilder, type SelectQueryBuilder } from 'kysely';
import type { SandboxRecord } from '../domain/record.js';
import type { SandboxState } from '../domain/states.js';
import { wireStatus } from '../domain/wire-status.js';
import type { Db } from './database.js';
import type { Tables } from './tables.js';

/** What a list selects. */
export interface SandboxFilter {
  /** Own ones and those of these teams; absent: all. */
  visibleTo?: { userId: string; teamIds: readonly string[] };
  ownerId?: string;
  teamId?: string;
  statuses?: readonly SandboxStatus[];
  /** Must have all of them. */
  labels?: readonly string[];
  idPrefix?: string;
}

/** Ids in one query: below SQLite's limit of bound values (32,766 by default). */
const idsPerQuery = 1000;

/** Adds a record; `secrets` is encrypted text. */
export async function insertSandbox(
  db: Db,
  record: SandboxRecord,
  secrets: string | null,
  now: number,
): Promise<void> {
  await db
    .insertInto('sandboxes')
    .values({
      ...columns(record, now),
      id: record.id,
      owner_id: record.ownerId,
      team_id: record.teamId,
      secrets,
    })
    .execute();
  const labels = [...new Set(record.labels)].map((label) => ({ sandbox_id: record.id, label }));
  if (labels.length > 0) await db.insertInto('sandbox_labels').values(labels).execute();
}

/** Replaces a record. Owner, team, labels and secrets never change. */
export async function updateSandbox(db: Db, record: SandboxRecord, now: number): Promise<void> {
  const secrets = record.endedAt === null ? {} : { secrets: null };
  await db
    .updateTable('sandboxes')
    .set({ ...columns(record, now), ...secrets })
    .where('id', '=', record.id)
    .execute();
}

/** Written out: every request asks this, and building a query costs more than SQLite takes to answer it. */
const findSql = 'select record from sandboxes where id = ?';

/** One record. */
export async function findSandbox(db: Db, id: string): Promise<SandboxRecord | undefined> {
  const { rows } = await db.executeQuery<{ record: string }>(CompiledQuery.raw(findSql, [id]));
  return rows[0] && parse(rows[0].record);
}

/** Encrypted secrets of a sandbox. */
export async function findSecrets(db: Db, id: string): Promise<string | null> {
  const row = await db.selectFrom('sandboxes').select('secrets').where('id', '=', id).executeTakeFirst();
  return row?.secrets ?? null;
}

/** Many records, by id; unknown ones are missing. */
export async function findSandboxes(db: Db, ids: readonly string[]): Promise<Map<string, SandboxRecord>> {
  const found = new Map<string, SandboxRecord>();
  for (let at = 0; at < ids.length; at += idsPerQuery) {
    const rows = await db
      .selectFrom('sandboxes')
      .select(['id', 'record'])
      .where('id', 'in', ids.slice(at, at + idsPerQuery))
      .execute();
    for (const row of rows) found.set(row.id, parse(row.record));
  }
  return found;
}

/** Ids that a filter selects, newest first, at most `limit`. */
export async function findSandboxIds(db: Db, filter: SandboxFilter, limit: number): Promise<string[]> {
  const query = filtered(db.selectFrom('sandboxes').select('id'), filter);
  const rows = await query.orderBy('seq', 'desc').limit(limit).execute();
  return rows.map((row) => row.id);
}

/** Records in any of the states, oldest first, at most `limit`. */
export async function findInStates(
  db: Db,
  states: readonly SandboxState[],
  limit: number,
): Promise<SandboxRecord[]> {
  const rows = await db
    .selectFrom('sandboxes')
    .select('record')
    .where('state', 'in', states)
    .orderBy('seq')
    .limit(limit)
    .execute();
  return rows.map((row) => parse(row.record));
}

/** Those that wait for room, in the order of the queue. */
export async function findQueued(db: Db): Promise<SandboxRecord[]> {
  const rows = await db
    .selectFrom('sandboxes')
    .select('record')
    .where('state', '=', 'pending')
    .where('node_id', 'is', null)
    .orderBy('seq')
    .execute();
  return rows.map((row) => parse(row.record));
}

/** Ids of those that wait for room, in the order of the queue. */
export async function findQueuedIds(db: Db): Promise<string[]> {
  const rows = await db
    .selectFrom('sandboxes')
    .select('id')
    .where('state', '=', 'pending')
    .where('node_id', 'is', null)
    .orderBy('seq')
    .execute();
  return rows.map((row) => row.id);
}

/** True when anything waits for room. */
export async function isAnyQueued(db: Db): Promise<boolean> {
  const row = await db
    .selectFrom('sandboxes')
    .select('seq')
    .where('state', '=', 'pending')
    .where('node_id', 'is', null)
    .limit(1)
    .executeTakeFirst();
  return row !== undefined;
}

/** How many there are of each wire status. */
export async function countByStatus(db: Db, filter: SandboxFilter): Promise<Map<string, number>> {
  const base = db
    .selectFrom('sandboxes')
    .select((eb) => ['wire_status', eb.fn.countAll<number>().as('count')])
    .groupBy('wire_status');
  const rows = await filtered(base, filter).execute();
  return new Map(rows.map((row) => [row.wire_status, Number(row.count)]));
}

/** Removes records that ended before a moment; what hangs on them goes with them. */
export async function purgeEnded(db: Db, before: number): Promise<number> {
  const result = await db.deleteFrom('sandboxes').where('ended_at', '<', before).executeTakeFirst();
  return Number(result.numDeletedRows);
}

function columns(record: SandboxRecord, now: number) {
  return {
    state: record.state,
    wire_status: wireStatus(record, now),
    node_id: record.nodeId,
    ended_at: record.endedAt,
    record: JSON.stringify(record),
  };
}

function parse(text: string): SandboxRecord {
  return JSON.parse(text) as SandboxRecord;
}

function filtered<Output>(
  query: SelectQueryBuilder<Tables, 'sandboxes', Output>,
  filter: SandboxFilter,
): SelectQueryBuilder<Tables, 'sandboxes', Output> {
  let result = query;
  const { visibleTo, ownerId, teamId, statuses, labels, idPrefix } = filter;
  if (visibleTo !== undefined) result = result.where((eb) => visible(eb, visibleTo));
  if (ownerId !== undefined) result = result.where('owner_id', '=', ownerId);
  if (teamId !== undefined) result = result.where('team_id', '=', teamId);
  if (statuses !== undefined) result = result.where('wire_status', 'in', statuses);
  // A range, so that the index on ids serves it; no id holds a character above "z".
  if (idPrefix !== undefined) result = result.where('id', '>=', idPrefix).where('id', '<', `${idPrefix}~`);
  for (const label of new Set(labels ?? []))
    result = result.where('id', 'in', (eb) =>
      eb.selectFrom('sandbox_labels').select('sandbox_id').where('label', '=', label),
    );
  return result;
}

/** A personal sandbox is its owner's alone; one of a team is its members'. */
function visible(
  eb: ExpressionBuilder<Tables, 'sandboxes'>,
  { userId, teamIds }: NonNullable<SandboxFilter['visibleTo']>,
) {
  const own = eb.and([eb('owner_id', '=', userId), eb('team_id', 'is', null)]);
  return teamIds.length === 0 ? own : eb.or([own, eb('team_id', 'in', teamIds)]);
}
