/** Users, teams and their members. Keys are in `keys.ts`. */
import type { TeamRole } from '@sandlot/protocol';
import { CompiledQuery } from 'kysely';
import type { Db } from './database.js';
import type { MemberRow, TeamRow, UserRow } from './tables.js';

/** Adds a user. */
export async function insertUser(db: Db, user: UserRow): Promise<void> {
  await db.insertInto('users').values(user).execute();
}

/** A user by id, else by name. */
export async function findUser(db: Db, idOrName: string): Promise<UserRow | undefined> {
  const rows = await db
    .selectFrom('users')
    .selectAll()
    .where((eb) => eb.or([eb('id', '=', idOrName), eb('name', '=', idOrName)]))
    .execute();
  return rows.find((row) => row.id === idOrName) ?? rows[0];
}

/** The oldest admin. */
export async function findFirstAdmin(db: Db): Promise<UserRow | undefined> {
  return db
    .selectFrom('users')
    .selectAll()
    .where('is_admin', '=', 1)
    .orderBy('created_at')
    .orderBy('id')
    .executeTakeFirst();
}

/** All users, oldest first. */
export async function findUsers(db: Db): Promise<UserRow[]> {
  return db.selectFrom('users').selectAll().orderBy('created_at').orderBy('id').execute();
}

/** Adds a team. */
export async function insertTeam(db: Db, team: TeamRow): Promise<void> {
  await db.insertInto('teams').values(team).execute();
}

/** A team by id, else by name. */
export async function findTeam(db: Db, idOrName: string): Promise<TeamRow | undefined> {
  const rows = await db
    .selectFrom('teams')
    .selectAll()
    .where((eb) => eb.or([eb('id', '=', idOrName), eb('name', '=', idOrName)]))
    .execute();
  return rows.find((row) => row.id === idOrName) ?? rows[0];
}

/** All teams, oldest first. */
export async function findTeams(db: Db): Promise<TeamRow[]> {
  return db.selectFrom('teams').selectAll().orderBy('created_at').orderBy('id').execute();
}

/** Written out, as every request asks it. */
const findTeamsSql = `select teams.*, team_members.role
from team_members inner join teams on teams.id = team_members.team_id
where team_members.user_id = ? order by teams.created_at, teams.id`;

/** Teams of a user with the role there. */
export async function findTeamsOf(db: Db, userId: string): Promise<(TeamRow & { role: TeamRole })[]> {
  const query = CompiledQuery.raw(findTeamsSql, [userId]);
  return (await db.executeQuery<TeamRow & { role: TeamRole }>(query)).rows;
}

/** Adds a member, or changes the role of one. */
export async function saveMember(db: Db, member: MemberRow): Promise<void> {
  await db
    .insertInto('team_members')
    .values(member)
    .onConflict((conflict) => conflict.columns(['team_id', 'user_id']).doUpdateSet({ role: member.role }))
    .execute();
}

/** Removes a member; false when there was none. */
export async function deleteMember(db: Db, teamId: string, userId: string): Promise<boolean> {
  const result = await db
    .deleteFrom('team_members')
    .where('team_id', '=', teamId)
    .where('user_id', '=', userId)
    .executeTakeFirst();
  return result.numDeletedRows > 0n;
}

/** Members of a team, oldest first. */
export async function findMembers(db: Db, teamId: string): Promise<(MemberRow & { user_name: string })[]> {
  return db
    .selectFrom('team_members')
    .innerJoin('users', 'users.id', 'team_members.user_id')
    .selectAll('team_members')
    .select('users.name as user_name')
    .where('team_id', '=', teamId)
    .orderBy('joined_at')
    .orderBy('user_id')
    .execute();
}
