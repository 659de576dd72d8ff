/** `client.accounts`: users, teams, keys. All need an admin's key or the local admin socket. */
import type { ApiClient, CallOptions } from '../http/api-client.js';

/** A user. */
export interface UserInfo {
  id: string;
  name: string;
  admin: boolean;
  createdAt: string;
}

/** A team and who is in it. */
export interface TeamInfo {
  id: string;
  name: string;
  createdAt: string;
  members: { userId: string; userName: string; role: 'admin' | 'member' }[];
}

/** A key, without its secret. */
export interface KeyInfo {
  id: string;
  name: string;
  userId: string;
  userName: string;
  createdAt: string;
  lastUsedAt?: string | null;
}

/** Calls about accounts. */
export class Accounts {
  constructor(private readonly api: ApiClient) {}

  /** Makes a user. */
  createUser(name: string, options: CallOptions = {}): Promise<UserInfo> {
    return this.api.call({ method: 'POST', path: '/accounts/users', body: { name }, ...options });
  }

  /** All users. */
  async listUsers(options: CallOptions = {}): Promise<UserInfo[]> {
    return (
      await this.api.call<{ users: UserInfo[] }>({ method: 'GET', path: '/accounts/users', ...options })
    ).users;
  }

  /** Makes a team. */
  createTeam(name: string, options: CallOptions = {}): Promise<TeamInfo> {
    return this.api.call({ method: 'POST', path: '/accounts/teams', body: { name }, ...options });
  }

  /** All teams. */
  async listTeams(options: CallOptions = {}): Promise<TeamInfo[]> {
    return (
      await this.api.call<{ teams: TeamInfo[] }>({ method: 'GET', path: '/accounts/teams', ...options })
    ).teams;
  }

  /** Adds a user to a team, or changes the role there. */
  async addToTeam(
    team: string,
    user: string,
    role: 'admin' | 'member' = 'member',
    options: CallOptions = {},
  ): Promise<void> {
    await this.api.call({
      method: 'PUT',
      path: `/accounts/teams/${encodeURIComponent(team)}/members/${encodeURIComponent(user)}`,
      body: { role },
      ...options,
    });
  }

  /** Makes a key; its secret is in this answer and never again. */
  createKey(
    create: { user?: string | undefined; name?: string | undefined },
    options: CallOptions = {},
  ): Promise<KeyInfo & { key: string }> {
    return this.api.call({ method: 'POST', path: '/accounts/keys', body: create, ...options });
  }

  /** All keys. */
  async listKeys(options: CallOptions = {}): Promise<KeyInfo[]> {
    return (await this.api.call<{ keys: KeyInfo[] }>({ method: 'GET', path: '/accounts/keys', ...options }))
      .keys;
  }

  /** Makes a key worthless. */
  async revokeKey(id: string, options: CallOptions = {}): Promise<void> {
    await this.api.call({ method: 'DELETE', path: `/accounts/keys/${encodeURIComponent(id)}`, ...options });
  }
}
