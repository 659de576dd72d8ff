/** Who asks: from an API key, or from the local admin socket, which needs none. */
import type { TeamRole } from '@sandlot/protocol';
import type { Actor } from '../domain/access.js';
import { findFirstAdmin, findTeamsOf } from '../store/accounts.js';
import { findUserOfKey, touchKey } from '../store/keys.js';
import type { UserRow } from '../store/tables.js';
import { AppError } from './app-error.js';
import type { AppContext } from './context.js';

/** The time of last use is written at most this often. */
const touchEveryMs = 60_000;

/** The actor of an `Authorization` header. */
export async function authenticate(app: AppContext, header: string | undefined): Promise<Actor> {
  const key = /^Bearer\s+(\S+)\s*$/i.exec(header ?? '')?.[1];
  if (key === undefined)
    throw new AppError('UNAUTHENTICATED', 'There is no API key: send `Authorization: Bearer <key>`.');
  const found = await findUserOfKey(app.store.db, key);
  if (found === undefined)
    throw new AppError(
      'UNAUTHENTICATED',
      'The API key is unknown or revoked. `sandlot key create` makes a new one.',
    );
  const now = app.now();
  if (found.lastUsedAt === null || now - found.lastUsedAt > touchEveryMs)
    await noteUse(app, found.keyId, now);
  return toActor(app, found.user);
}

/** Nobody is refused because this cannot be written: a full disk must not keep anybody from reading. */
async function noteUse(app: AppContext, keyId: string, now: number): Promise<void> {
  try {
    await touchKey(app.store.db, keyId, now);
  } catch (error) {
    app.log.warn({ err: error, keyId }, 'the last use of a key could not be noted');
  }
}

/** The actor of the admin socket: the first admin. */
export async function authenticateLocalAdmin(app: AppContext): Promise<Actor> {
  const admin = await findFirstAdmin(app.store.db);
  if (admin === undefined) throw new Error('there is no admin although the first start makes one; a bug');
  return toActor(app, admin);
}

async function toActor(app: AppContext, user: UserRow): Promise<Actor> {
  const teams = await findTeamsOf(app.store.db, user.id);
  return {
    userId: user.id,
    userName: user.name,
    isAdmin: user.is_admin === 1,
    teams: new Map<string, TeamRole>(teams.map((team) => [team.id, team.role])),
  };
}
