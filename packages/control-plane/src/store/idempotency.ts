/** Creates that were asked for under a key. An entry lives as long as the record of its sandbox. */
import type { Db } from './database.js';

/** A create that was asked for before. */
export interface Repetition {
  sandboxId: string;
  bodyHash: string;
}

/** What was made under a key of a user. */
export async function findRepetition(db: Db, userId: string, key: string): Promise<Repetition | undefined> {
  const row = await db
    .selectFrom('idempotency')
    .select(['sandbox_id', 'body_hash'])
    .where('user_id', '=', userId)
    .where('key', '=', key)
    .executeTakeFirst();
  return row && { sandboxId: row.sandbox_id, bodyHash: row.body_hash };
}

/** Notes what is made under a key; in the transaction that adds the sandbox. */
export async function insertRepetition(
  db: Db,
  userId: string,
  key: string,
  { sandboxId, bodyHash }: Repetition,
): Promise<void> {
  await db
    .insertInto('idempotency')
    .values({ user_id: userId, key, body_hash: bodyHash, sandbox_id: sandboxId })
    .execute();
}
