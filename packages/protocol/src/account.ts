/**
 * Users, teams and keys on the wire: `/user/…`, `/users`, `/teams`, `/keys`. The `/user` and
 * `/teams/{id}/members` reads are Prime's; the rest are additions.
 */
import { type Static, type TSchema, Type } from '@sinclair/typebox';
import { Id, Nullable, OneOf, Timestamp } from './schema.js';

/** Role in a team. */
export const TeamRole = OneOf('admin', 'member');
/** Role in a team. */
export type TeamRole = Static<typeof TeamRole>;

const AccountName = Type.String({
  pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$',
  description: 'letters, digits, ".", "_" and "-", at most 63, a letter or digit first.',
});
const IdOrName = Type.String({ minLength: 1, maxLength: 64, description: 'Id or name.' });

/** Every list of accounts: a page, and how many there are in all. */
function listOf<T extends TSchema>(item: T) {
  return Type.Object({ data: Type.Array(item), total_count: Type.Integer() });
}

/** Answer of `GET /user/whoami`. */
export const WhoAmI = Type.Object({
  data: Type.Object({
    id: Id,
    email: Type.String(),
    name: Type.String(),
    slug: Type.String(),
    scope: Type.Record(Type.String(), Type.Object({ read: Type.Boolean(), write: Type.Boolean() })),
    isAdmin: Type.Boolean({ description: 'Addition.' }),
  }),
});
/** Who a key belongs to. */
export type WhoAmI = Static<typeof WhoAmI>;

/** Query of the account lists. */
export const OffsetQuery = Type.Object({
  offset: Type.Optional(Type.Integer({ minimum: 0 })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
});
/** Query of the account lists. */
export type OffsetQuery = Static<typeof OffsetQuery>;

/** A team as its member sees it. */
export const Team = Type.Object({
  teamId: Id,
  name: Type.String(),
  slug: Type.String(),
  role: TeamRole,
  createdAt: Timestamp,
});
/** A team. */
export type Team = Static<typeof Team>;

/** Answer of `GET /user/teams` and `GET /teams`. */
export const TeamList = listOf(Team);
/** Teams. */
export type TeamList = Static<typeof TeamList>;

/** A member of a team. */
export const TeamMember = Type.Object({
  userId: Id,
  userName: Type.String(),
  name: Type.String(),
  role: TeamRole,
  joinedAt: Timestamp,
});
/** A member of a team. */
export type TeamMember = Static<typeof TeamMember>;

/** Answer of `GET /teams/{team_id}/members`. */
export const TeamMemberList = listOf(TeamMember);
/** Members of a team. */
export type TeamMemberList = Static<typeof TeamMemberList>;

/** A user. */
export const User = Type.Object({
  id: Id,
  name: Type.String(),
  isAdmin: Type.Boolean(),
  createdAt: Timestamp,
});
/** A user. */
export type User = Static<typeof User>;

/** Body of `POST /users`. */
export const CreateUser = Type.Object({ name: AccountName, admin: Type.Optional(Type.Boolean()) });
/** Body of `POST /users`. */
export type CreateUser = Static<typeof CreateUser>;

/** Answer of `GET /users`. */
export const UserList = listOf(User);
/** Users. */
export type UserList = Static<typeof UserList>;

/** Body of `POST /teams`. */
export const CreateTeam = Type.Object({ name: AccountName });
/** Body of `POST /teams`. */
export type CreateTeam = Static<typeof CreateTeam>;

/** Body of `PUT /teams/{team_id}/members/{user}`. */
export const SetMember = Type.Object({ role: Type.Optional(TeamRole) });
/** Body of `PUT /teams/{team_id}/members/{user}`. */
export type SetMember = Static<typeof SetMember>;

/** An API key, without its secret. */
export const ApiKey = Type.Object({
  id: Id,
  name: Type.String(),
  /** First characters of the key, to tell keys apart. */
  prefix: Type.String(),
  userId: Id,
  userName: Type.String(),
  createdAt: Timestamp,
  lastUsedAt: Nullable(Timestamp),
  revokedAt: Nullable(Timestamp),
});
/** An API key, without its secret. */
export type ApiKey = Static<typeof ApiKey>;

/** Body of `POST /keys`. Without `user` the key belongs to the caller. */
export const CreateKey = Type.Object({
  name: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  user: Type.Optional(IdOrName),
});
/** Body of `POST /keys`. */
export type CreateKey = Static<typeof CreateKey>;

/** Answer of `POST /keys`: the only time that the key itself is shown. */
export const CreatedKey = Type.Composite([ApiKey, Type.Object({ key: Type.String() })]);
/** A new key. */
export type CreatedKey = Static<typeof CreatedKey>;

/** Query of `GET /keys`. */
export const ListKeysQuery = Type.Object({
  user: Type.Optional(IdOrName),
});
/** Query of `GET /keys`. */
export type ListKeysQuery = Static<typeof ListKeysQuery>;

/** Answer of `GET /keys`. */
export const KeyList = listOf(ApiKey);
/** Keys. */
export type KeyList = Static<typeof KeyList>;
