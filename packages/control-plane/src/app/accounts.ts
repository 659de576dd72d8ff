/** Users and teams: `/user/…`, `/users`, `/teams`. The first start makes user `admin` through here. */
import type { Team, TeamList, TeamMember, TeamMemberList, User, UserList, WhoAmI } from '@sandlot/protocol';
import { type Actor, mayUseTeam } from '../domain/access.js';
import {
  deleteMember,
  findMembers,
  findTeam,
  findTeams,
  findTeamsOf,
  findUser,
  findUsers,
  insertTeam,
  insertUser,
  saveMember,
} from '../store/accounts.js';
import type { Db } from '../store/database.js';
import type { Store } from '../store/store.js';
import type { TeamRow, UserRow } from '../store/tables.js';
import { AppError } from './app-error.js';
import type { AppContext } from './context.js';
import { newId, newTeamId } from './ids.js';

/** Name of the user that the first start makes. */
export const firstUserName = 'admin';

interface Window {
  offset?: number;
  limit?: number;
}

/** Makes user `admin` with its team if there is no user at all. */
export async function ensureFirstUser(store: Store, now: number): Promise<void> {
  await store.transaction(async (db) => {
    if ((await findUsers(db)).length === 0) await addUser(db, firstUserName, true, now);
  });
}

/** `GET /user/whoami`. */
export function whoAmI(actor: Actor): WhoAmI {
  const all = { read: true, write: true };
  return {
    data: {
      id: actor.userId,
      email: '',
      name: actor.userName,
      slug: actor.userName.toLowerCase(),
      scope: { sandboxes: all, images: all, ...(actor.isAdmin ? { accounts: all } : {}) },
      isAdmin: actor.isAdmin,
    },
  };
}

/** `GET /user/teams`. */
export async function listMyTeams(app: AppContext, actor: Actor, window: Window): Promise<TeamList> {
  const teams = await findTeamsOf(app.store.db, actor.userId);
  return listed(
    teams.map((team) => toTeam(team, team.role)),
    window,
  );
}

/** `GET /teams`; the role shown is the caller's, `admin` where an admin is no member. */
export async function listTeams(app: AppContext, actor: Actor, window: Window): Promise<TeamList> {
  const teams = await findTeams(app.store.db);
  return listed(
    teams.map((team) => toTeam(team, actor.teams.get(team.id) ?? 'admin')),
    window,
  );
}

/** `POST /teams`. */
export async function createTeam(app: AppContext, actor: Actor, name: string): Promise<Team> {
  const team: TeamRow = { id: newTeamId(), name, personal_of: null, created_at: app.now() };
  await app.store.transaction(async (db) => {
    if ((await findTeam(db, name)) !== undefined)
      throw new AppError('CONFLICT', `There is a team named "${name}" already. Choose another name.`);
    await insertTeam(db, team);
    await saveMember(db, { team_id: team.id, user_id: actor.userId, role: 'admin', joined_at: app.now() });
  });
  return toTeam(team, 'admin');
}

/** A team that the caller may use, by id or name. Throws NOT_FOUND, also for one of others. */
export async function requireTeam(db: Db, actor: Actor, idOrName: string): Promise<TeamRow> {
  const team = await findTeam(db, idOrName);
  if (team === undefined || !mayUseTeam(actor, team.id)) throw notFound('team', idOrName, 'sandlot team ls');
  return team;
}

/** `GET /teams/{team_id}/members`. */
export async function listTeamMembers(
  app: AppContext,
  actor: Actor,
  idOrName: string,
): Promise<TeamMemberList> {
  const team = await requireTeam(app.store.db, actor, idOrName);
  const members = await findMembers(app.store.db, team.id);
  return { data: members.map(toMember), total_count: members.length };
}

/** `PUT /teams/{team_id}/members/{user}`. */
export async function setTeamMember(
  app: AppContext,
  teamName: string,
  userName: string,
  role: 'admin' | 'member' | undefined,
): Promise<TeamMember> {
  return app.store.transaction(async (db) => {
    const { team, user } = await requireBoth(db, teamName, userName);
    if (team.personal_of !== null)
      throw new AppError(
        'CONFLICT',
        `"${team.name}" is a personal team: it has one member. Create a team to share.`,
      );
    const known = (await findMembers(db, team.id)).find((member) => member.user_id === user.id);
    const member = {
      team_id: team.id,
      user_id: user.id,
      role: role ?? known?.role ?? 'member',
      joined_at: known?.joined_at ?? app.now(),
    };
    await saveMember(db, member);
    return toMember({ ...member, user_name: user.name });
  });
}

/** `DELETE /teams/{team_id}/members/{user}`. */
export async function removeTeamMember(app: AppContext, teamName: string, userName: string): Promise<void> {
  await app.store.transaction(async (db) => {
    const { team, user } = await requireBoth(db, teamName, userName);
    if (team.personal_of !== null)
      throw new AppError('CONFLICT', `"${team.name}" is the personal team of its user, who stays in it.`);
    if (!(await deleteMember(db, team.id, user.id)))
      throw new AppError('NOT_FOUND', `User "${user.name}" is not in team "${team.name}".`);
  });
}

/** `GET /users`. */
export async function listUsers(app: AppContext, window: Window): Promise<UserList> {
  return listed((await findUsers(app.store.db)).map(toUser), window);
}

/** `POST /users`. */
export async function createUser(app: AppContext, name: string, isAdmin: boolean): Promise<User> {
  return app.store.transaction(async (db) => {
    if ((await findUser(db, name)) !== undefined)
      throw new AppError('CONFLICT', `There is a user named "${name}" already. Choose another name.`);
    if ((await findTeam(db, personalTeamName(name))) !== undefined)
      throw new AppError(
        'CONFLICT',
        `A team has the name of the user's personal team, "${personalTeamName(name)}".`,
      );
    return toUser(await addUser(db, name, isAdmin, app.now()));
  });
}

/** A user by id or name, or 404. */
export async function requireUser(db: Db, idOrName: string): Promise<UserRow> {
  const user = await findUser(db, idOrName);
  if (user === undefined) throw notFound('user', idOrName, 'sandlot user ls');
  return user;
}

async function addUser(db: Db, name: string, isAdmin: boolean, now: number): Promise<UserRow> {
  const user: UserRow = { id: newId(), name, is_admin: isAdmin ? 1 : 0, created_at: now };
  const team: TeamRow = {
    id: newTeamId(),
    name: personalTeamName(name),
    personal_of: user.id,
    created_at: now,
  };
  await insertUser(db, user);
  await insertTeam(db, team);
  await saveMember(db, { team_id: team.id, user_id: user.id, role: 'admin', joined_at: now });
  return user;
}

function personalTeamName(userName: string): string {
  return `personal-${userName}`;
}

async function requireBoth(
  db: Db,
  teamName: string,
  userName: string,
): Promise<{ team: TeamRow; user: UserRow }> {
  const team = await findTeam(db, teamName);
  if (team === undefined) throw notFound('team', teamName, 'sandlot team ls');
  return { team, user: await requireUser(db, userName) };
}

function notFound(kind: string, name: string, command: string): AppError {
  return new AppError('NOT_FOUND', `There is no ${kind} "${name}". \`${command}\` lists them.`);
}

function listed<T>(all: T[], { offset = 0, limit = 1000 }: Window): { data: T[]; total_count: number } {
  return { data: all.slice(offset, offset + limit), total_count: all.length };
}

function toUser(row: UserRow): User {
  return {
    id: row.id,
    name: row.name,
    isAdmin: row.is_admin === 1,
    createdAt: new Date(row.created_at).toISOString(),
  };
}

function toTeam(row: TeamRow, role: 'admin' | 'member'): Team {
  const createdAt = new Date(row.created_at).toISOString();
  return { teamId: row.id, name: row.name, slug: row.name.toLowerCase(), role, createdAt };
}

function toMember(row: {
  user_id: string;
  user_name: string;
  role: 'admin' | 'member';
  joined_at: number;
}): TeamMember {
  const joinedAt = new Date(row.joined_at).toISOString();
  return { userId: row.user_id, userName: row.user_name, name: row.user_name, role: row.role, joinedAt };
}
