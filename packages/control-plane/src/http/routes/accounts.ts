/** Handlers of `/user…`, `/users`, `/teams`, `/keys`. */
import {
  createTeam,
  createUser,
  listMyTeams,
  listTeamMembers,
  listTeams,
  listUsers,
  removeTeamMember,
  setTeamMember,
  whoAmI,
} from '../../app/accounts.js';
import type { AppContext } from '../../app/context.js';
import { createKey, listKeys, revokeKey } from '../../app/keys.js';
import type { Handlers } from '../handlers.js';

type AccountOperations =
  | 'whoAmI'
  | 'listMyTeams'
  | 'listTeamMembers'
  | 'listTeams'
  | 'createTeam'
  | 'setTeamMember'
  | 'removeTeamMember'
  | 'listUsers'
  | 'createUser'
  | 'listKeys'
  | 'createKey'
  | 'revokeKey';

/** The handlers. */
export function accountHandlers(app: AppContext): Handlers<AccountOperations> {
  const memberOf = (params: Record<string, string>) =>
    [params['team_id'] ?? '', params['user'] ?? ''] as const;
  return {
    whoAmI: ({ caller }) => whoAmI(caller.actor),
    listMyTeams: ({ caller, query }) => listMyTeams(app, caller.actor, query),
    listTeamMembers: ({ caller, params }) => listTeamMembers(app, caller.actor, params['team_id'] ?? ''),
    listTeams: ({ caller, query }) => listTeams(app, caller.actor, query),
    createTeam: ({ caller, body }) => createTeam(app, caller.actor, body.name),
    setTeamMember: ({ params, body }) => setTeamMember(app, ...memberOf(params), body.role),
    removeTeamMember: async ({ params }) => {
      await removeTeamMember(app, ...memberOf(params));
      return { success: true, message: 'The member was removed.' };
    },
    listUsers: ({ query }) => listUsers(app, query),
    createUser: ({ body }) => createUser(app, body.name, body.admin ?? false),
    listKeys: ({ query }) => listKeys(app, query.user),
    createKey: ({ caller, body }) => createKey(app, caller.actor, body),
    revokeKey: async ({ params }) => {
      await revokeKey(app, params['key_id'] ?? '');
      return { success: true, message: 'The key was revoked.' };
    },
  };
}
