/** Records of checkpoints: read, search, write as a whole. Every function takes a connection or a transaction. */
import type { CheckpointRecord, CheckpointState } from '../domain/checkpoint.js';
import type { Db } from './database.js';

/** Most that are read at once. */
const maxRecords = 100_000;

/** Adds a record; `secrets` are its sandbox's, encrypted under the checkpoint's id. */
export async function insertCheckpoint(
  db: Db,
  record: CheckpointRecord,
  secrets: string | null,
): Promise<void> {
  const { id, sandboxId, ownerId, teamId } = record;
  await db
    .insertInto('checkpoints')
    .values({ id, sandbox_id: sandboxId, owner_id: ownerId, team_id: teamId, secrets, ...columns(record) })
    .execute();
}

/** Replaces a record. Sandbox, owner, team and secrets never change. */
export async function updateCheckpoint(db: Db, record: CheckpointRecord): Promise<void> {
  await db.updateTable('checkpoints').set(columns(record)).where('id', '=', record.id).execute();
}

/** Removes one for good. */
export async function deleteCheckpoint(db: Db, id: string): Promise<void> {
  await db.deleteFrom('checkpoints').where('id', '=', id).execute();
}

/** One record. */
export async function findCheckpoint(db: Db, id: string): Promise<CheckpointRecord | undefined> {
  const row = await db.selectFrom('checkpoints').select('record').where('id', '=', id).executeTakeFirst();
  return row && parse(row.record);
}

/** Encrypted secrets of one. */
export async function findCheckpointSecrets(db: Db, id: string): Promise<string | null> {
  const row = await db.selectFrom('checkpoints').select('secrets').where('id', '=', id).executeTakeFirst();
  return row?.secrets ?? null;
}

/** Many records, by id; unknown ones are missing. */
export async function findCheckpoints(
  db: Db,
  ids: readonly string[],
): Promise<Map<string, CheckpointRecord>> {
  const rows = await db.selectFrom('checkpoints').select('record').where('id', 'in', ids).execute();
  const found = rows.map((row) => parse(row.record));
  return new Map(found.map((record) => [record.id, record]));
}

/** Those of a sandbox, oldest first. */
export async function findCheckpointsOf(db: Db, sandboxId: string): Promise<CheckpointRecord[]> {
  const rows = await db
    .selectFrom('checkpoints')
    .select('record')
    .where('sandbox_id', '=', sandboxId)
    .orderBy('seq')
    .limit(maxRecords)
    .execute();
  return rows.map((row) => parse(row.record));
}

/** The newest that somebody may see, oldest first: own ones without a team, and those of teams; all without `visibleTo`. */
export async function findVisibleCheckpoints(
  db: Db,
  {
    visibleTo,
    prefix,
    limit,
  }: {
    visibleTo: { userId: string; teamIds: readonly string[] } | undefined;
    prefix: string | undefined;
    limit: number;
  },
): Promise<CheckpointRecord[]> {
  let query = db.selectFrom('checkpoints').select('record');
  if (visibleTo !== undefined)
    query = query.where((eb) => {
      const own = eb.and([eb('owner_id', '=', visibleTo.userId), eb('team_id', 'is', null)]);
      return visibleTo.teamIds.length === 0 ? own : eb.or([own, eb('team_id', 'in', visibleTo.teamIds)]);
    });
  // A range, so that the index on ids serves it; no id holds a character above "z".
  if (prefix !== undefined) query = query.where('id', '>=', prefix).where('id', '<', `${prefix}~`);
  const rows = await query.orderBy('seq', 'desc').limit(limit).execute();
  return rows.map((row) => parse(row.record)).reverse();
}

/** Those in any of the states, oldest first. */
export async function findCheckpointsIn(
  db: Db,
  states: readonly CheckpointState[],
): Promise<CheckpointRecord[]> {
  const rows = await db
    .selectFrom('checkpoints')
    .select('record')
    .where('state', 'in', states)
    .orderBy('seq')
    .limit(maxRecords)
    .execute();
  return rows.map((row) => parse(row.record));
}

/** Those whose time is over. */
export async function findExpiredCheckpoints(db: Db, now: number): Promise<CheckpointRecord[]> {
  const rows = await db
    .selectFrom('checkpoints')
    .select('record')
    .where('expires_at', '<=', now)
    .limit(maxRecords)
    .execute();
  return rows.map((row) => parse(row.record));
}

/** How many a user has. */
export async function countCheckpoints(db: Db, ownerId: string): Promise<number> {
  const row = await db
    .selectFrom('checkpoints')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('owner_id', '=', ownerId)
    .executeTakeFirst();
  return Number(row?.count ?? 0);
}

/** Removes failed ones that were last changed before a moment. */
export async function purgeFailedCheckpoints(db: Db, before: number): Promise<void> {
  await db.deleteFrom('checkpoints').where('state', '=', 'failed').where('updated_at', '<', before).execute();
}

function columns(record: CheckpointRecord) {
  const { state, nodeId, expiresAt, updatedAt } = record;
  return {
    state,
    node_id: nodeId,
    expires_at: expiresAt,
    updated_at: updatedAt,
    record: JSON.stringify(record),
  };
}

function parse(text: string): CheckpointRecord {
  return JSON.parse(text) as CheckpointRecord;
}
