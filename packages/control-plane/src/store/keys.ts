/** API keys: random enough that a plain SHA-256 is all that need be kept of them. */
import { createHash } from 'node:crypto';
import { CompiledQuery } from 'kysely';
import type { Db } from './database.js';
import type { KeyRow, UserRow } from './tables.js';

/** What is stored of a key. */
export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

/** Adds a key. */
export async function insertKey(db: Db, key: KeyRow): Promise<void> {
  await db.insertInto('api_keys').values(key).execute();
}

/** Written out: every request asks this, and building a query costs more than SQLite takes to answer it. */
const findUserSql = `select users.*, api_keys.id as key_id, api_keys.last_used_at
from api_keys inner join users on users.id = api_keys.user_id
where api_keys.hash = ? and api_keys.revoked_at is null`;

/** The user of a key that is not revoked, and when the key was last used. */
export async function findUserOfKey(
  db: Db,
  key: string,
): Promise<{ user: UserRow; keyId: string; lastUsedAt: number | null } | undefined> {
  const { rows } = await db.executeQuery<UserRow & { key_id: string; last_used_at: number | null }>(
    CompiledQuery.raw(findUserSql, [hashKey(key)]),
  );
  const row = rows[0];
  if (row === undefined) return undefined;
  const { key_id, last_used_at, ...user } = row;
  return { user, keyId: key_id, lastUsedAt: last_used_at };
}

/** Notes that a key was used. */
export async function touchKey(db: Db, keyId: string, now: number): Promise<void> {
  await db.updateTable('api_keys').set({ last_used_at: now }).where('id', '=', keyId).execute();
}

/** Keys with the names of their users, oldest first; of one user or all. */
export async function findKeys(db: Db, userId?: string): Promise<(KeyRow & { user_name: string })[]> {
  let query = db
    .selectFrom('api_keys')
    .innerJoin('users', 'users.id', 'api_keys.user_id')
    .selectAll('api_keys')
    .select('users.name as user_name');
  if (userId !== undefined) query = query.where('api_keys.user_id', '=', userId);
  return query.orderBy('api_keys.created_at').orderBy('api_keys.id').execute();
}

/** Revokes a key; false when there is none that is valid. */
export async function revokeKey(db: Db, id: string, now: number): Promise<boolean> {
  const result = await db
    .updateTable('api_keys')
    .set({ revoked_at: now })
    .where('id', '=', id)
    .where('revoked_at', 'is', null)
    .executeTakeFirst();
  return result.numUpdatedRows > 0n;
}
