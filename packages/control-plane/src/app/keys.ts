/** API keys: `/keys`. A key is shown once, when it is made; its hash alone is stored. */
import type { ApiKey, CreatedKey, CreateKey, KeyList } from '@sandlot/protocol';
import type { Actor } from '../domain/access.js';
import { findKeys, hashKey, insertKey, revokeKey as revoke } from '../store/keys.js';
import type { KeyRow } from '../store/tables.js';
import { requireUser } from './accounts.js';
import { AppError } from './app-error.js';
import type { AppContext } from './context.js';
import { newApiKey, newId } from './ids.js';

const prefixLength = 8;

/** `POST /keys`. */
export async function createKey(app: AppContext, actor: Actor, body: CreateKey): Promise<CreatedKey> {
  const user = await requireUser(app.store.db, body.user ?? actor.userId);
  const key = newApiKey();
  const row: KeyRow = {
    id: newId(),
    user_id: user.id,
    name: body.name ?? 'key',
    prefix: key.slice(0, prefixLength),
    hash: hashKey(key),
    created_at: app.now(),
    last_used_at: null,
    revoked_at: null,
  };
  await insertKey(app.store.db, row);
  app.log.info({ keyId: row.id, userId: user.id }, 'key created');
  return { ...toKey({ ...row, user_name: user.name }), key };
}

/** `GET /keys`. */
export async function listKeys(app: AppContext, user: string | undefined): Promise<KeyList> {
  const userId = user === undefined ? undefined : (await requireUser(app.store.db, user)).id;
  const data = (await findKeys(app.store.db, userId)).map(toKey);
  return { data, total_count: data.length };
}

/** `DELETE /keys/{key_id}`. */
export async function revokeKey(app: AppContext, id: string): Promise<void> {
  if (!(await revoke(app.store.db, id, app.now())))
    throw new AppError('NOT_FOUND', `There is no valid key ${id}. \`sandlot key ls\` lists them.`);
  app.log.info({ keyId: id }, 'key revoked');
}

function toKey(row: KeyRow & { user_name: string }): ApiKey {
  const iso = (time: number | null) => (time === null ? null : new Date(time).toISOString());
  return {
    id: row.id,
    name: row.name,
    prefix: row.prefix,
    userId: row.user_id,
    userName: row.user_name,
    createdAt: new Date(row.created_at).toISOString(),
    lastUsedAt: iso(row.last_used_at),
    revokedAt: iso(row.revoked_at),
  };
}
