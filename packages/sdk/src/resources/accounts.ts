/** `client.accounts`: users, teams, keys. All need an admin's key or the local admin socket. */
import type { ApiKey, CreatedKey, Team, TeamMember, User } from '@sandlot/protocol';
import type { ApiClient, CallOptions } from '../http/api-client.js';

/** Entries of one page of users and teams. */
const pageSize = 1_000;

/** Calls about accounts. Users and teams are named by id or by name. */
export class Accounts {
  constructor(private readonly api: ApiClient) {}

  /** Makes a user with a personal team. */
  createUser(name: string, options: CallOptions & { admin?: boolean | undefined } = {}): Promise<User> {
    const { admin, ...call } = options;
    return this.api.call({
      method: 'POST',
      path: '/users',
      body: { name, ...(admin ? { admin } : {}) },
      ...call,
    });
  }

  /** All users. */
  listUsers(options: CallOptions = {}): AsyncGenerator<User> {
    return this.#pages<User>('/users', options);
  }

  /** Makes a team. */
  createTeam(name: string, options: CallOptions = {}): Promise<Team> {
    return this.api.call({ method: 'POST', path: '/teams', body: { name }, ...options });
  }

  /** All teams. */
  listTeams(options: CallOptions = {}): AsyncGenerator<Team> {
    return this.#pages<Team>('/teams', options);
  }

  /** Who is in a team. */
  async listTeamMembers(team: string, options: CallOptions = {}): Promise<TeamMember[]> {
    const path = `/teams/${encodeURIComponent(team)}/members`;
    return (await this.api.call<{ data: TeamMember[] }>({ method: 'GET', path, ...options })).data;
  }

  /** Adds a user to a team, or changes the role there. */
  addToTeam(
    team: string,
    user: string,
    role: 'admin' | 'member' = 'member',
    options: CallOptions = {},
  ): Promise<TeamMember> {
    return this.api.call({ method: 'PUT', path: memberPath(team, user), body: { role }, ...options });
  }

  /** Takes a user out of a team. */
  async removeFromTeam(team: string, user: string, options: CallOptions = {}): Promise<void> {
    await this.api.call({ method: 'DELETE', path: memberPath(team, user), ...options });
  }

  /** Makes a key; its secret is in this answer and never again. */
  createKey(
    create: { user?: string | undefined; name?: string | undefined } = {},
    options: CallOptions = {},
  ): Promise<CreatedKey> {
    return this.api.call({ method: 'POST', path: '/keys', body: create, ...options });
  }

  /** All keys, or those of one user. */
  async listKeys(filter: { user?: string | undefined } = {}, options: CallOptions = {}): Promise<ApiKey[]> {
    return (
      await this.api.call<{ data: ApiKey[] }>({ method: 'GET', path: '/keys', query: filter, ...options })
    ).data;
  }

  /** Makes a key worthless, at once. */
  async revokeKey(id: string, options: CallOptions = {}): Promise<void> {
    await this.api.call({ method: 'DELETE', path: `/keys/${encodeURIComponent(id)}`, ...options });
  }

  async *#pages<T>(path: string, options: CallOptions): AsyncGenerator<T> {
    for (let offset = 0; ; offset += pageSize) {
      const answer = await this.api.call<{ data: T[]; total_count: number }>({
        method: 'GET',
        path,
        query: { offset, limit: pageSize },
        ...options,
      });
      yield* answer.data;
      if (answer.data.length === 0 || offset + pageSize >= answer.total_count) return;
    }
  }
}

function memberPath(team: string, user: string): string {
  return `/teams/${encodeURIComponent(team)}/members/${encodeURIComponent(user)}`;
}
