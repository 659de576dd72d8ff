/** Who may see and change what. Pure; used by every operation before it touches a record. */
import type { TeamRole } from '@sandlot/protocol';

/** Whoever makes a request. */
export interface Actor {
  userId: string;
  userName: string;
  isAdmin: boolean;
  /** Role in each team, by team id. */
  teams: ReadonlyMap<string, TeamRole>;
}

/** True when the actor may see and use a sandbox: its owner, its team's members, an admin. */
export function maySee(actor: Actor, sandbox: { ownerId: string; teamId: string | null }): boolean {
  if (actor.isAdmin) return true;
  return sandbox.teamId === null ? sandbox.ownerId === actor.userId : actor.teams.has(sandbox.teamId);
}

/** True when the actor may act for a whole team, also on what others own. */
export function mayManageTeam(actor: Actor, teamId: string): boolean {
  return actor.isAdmin || actor.teams.get(teamId) === 'admin';
}

/** True when the actor belongs to a team or is an admin. */
export function mayUseTeam(actor: Actor, teamId: string): boolean {
  return actor.isAdmin || actor.teams.has(teamId);
}
