/**
 * The table of routes below `/api/v1`: the control plane registers its handlers from it, the
 * OpenAPI document is made from it. A route that is not here does not exist.
 */
import * as account from './account.js';
import * as checkpoint from './checkpoint.js';
import type { ErrorCode } from './errors.js';
import * as image from './image.js';
import * as sandbox from './sandbox.js';
import * as batch from './sandbox-batch.js';
import type { TSchema } from './schema.js';
import * as system from './system.js';

/** Where the API begins. */
export const apiBase = '/api/v1';

/** One route. Paths hold `{parameters}`; a colon is literal. */
export interface Route {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH';
  path: string;
  summary: string;
  /** Who may call it. `key`: any valid key. */
  access: 'open' | 'key' | 'admin';
  query?: TSchema;
  /** JSON body. */
  body?: TSchema;
  /** The body may be absent. */
  bodyOptional?: boolean;
  /** The body is a stream of bytes and is never held in memory. */
  streamBody?: boolean;
  /** Largest JSON body in bytes; 1 MiB when absent. */
  bodyLimitBytes?: number;
  /** Status of success; 200 when absent. */
  status?: number;
  answer: TSchema;
  /** The answer is one JSON text a line, each as `answer`. */
  ndjson?: boolean;
  /** Errors beside those that every route has. */
  errors: readonly ErrorCode[];
  /** Not one of Prime's routes. */
  addition?: boolean;
}

const mib = 1024 * 1024;
const one = ['SANDBOX_NOT_FOUND'] as const;

/** Every route, by its operation id. */
export const routes = {
  createSandbox: {
    method: 'POST',
    path: '/sandbox',
    summary: 'Create a sandbox',
    access: 'key',
    query: sandbox.WaitQuery,
    body: sandbox.CreateSandbox,
    bodyLimitBytes: 4 * mib,
    status: 201,
    answer: sandbox.Sandbox,
    errors: ['IDEMPOTENCY_MISMATCH', 'NOT_IMPLEMENTED', 'NOT_FOUND', 'CONFLICT'],
  },
  listSandboxes: {
    method: 'GET',
    path: '/sandbox',
    summary: 'List sandboxes, newest first',
    access: 'key',
    query: sandbox.ListSandboxesQuery,
    answer: sandbox.SandboxList,
    errors: [],
  },
  bulkDeleteSandboxes: {
    method: 'DELETE',
    path: '/sandbox',
    summary: 'Delete many sandboxes, by id or by labels',
    access: 'key',
    body: sandbox.BulkDelete,
    answer: sandbox.BulkDeleted,
    errors: ['FORBIDDEN', 'NOT_FOUND'],
  },
  batchGetStatus: {
    method: 'POST',
    path: '/sandbox/status:batchGet',
    summary: 'Statuses of up to 100 sandboxes',
    access: 'key',
    body: batch.BatchStatusRequest,
    answer: batch.BatchStatus,
    errors: [],
  },
  batchGetJobs: {
    method: 'POST',
    path: '/sandbox/background-jobs/status:batchGet',
    summary: 'States of up to 100 background jobs',
    access: 'key',
    body: batch.BatchJobsRequest,
    answer: batch.BatchJobs,
    errors: [],
  },
  getSandbox: {
    method: 'GET',
    path: '/sandbox/{sandbox_id}',
    summary: 'One sandbox',
    access: 'key',
    query: sandbox.WaitQuery,
    answer: sandbox.Sandbox,
    errors: one,
  },
  deleteSandbox: {
    method: 'DELETE',
    path: '/sandbox/{sandbox_id}',
    summary: 'Delete a sandbox; a second delete is 404',
    access: 'key',
    answer: sandbox.Done,
    errors: one,
  },
  pauseSandbox: {
    method: 'POST',
    path: '/sandbox/{sandbox_id}/pause',
    summary: 'Save a sandbox and free its memory; the next use of it, or a resume, goes on from there',
    access: 'key',
    answer: sandbox.Sandbox,
    errors: [...one, 'CONFLICT', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
  },
  resumeSandbox: {
    method: 'POST',
    path: '/sandbox/{sandbox_id}/resume',
    summary: 'Let a paused sandbox go on',
    access: 'key',
    answer: sandbox.Sandbox,
    errors: [...one, 'CONFLICT', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
  },
  forkSandbox: {
    method: 'POST',
    path: '/sandbox/{sandbox_id}/fork',
    summary: 'Copies of a running sandbox, processes and all, each with an identity of its own; it goes on',
    access: 'key',
    body: sandbox.ForkSandbox,
    bodyOptional: true,
    bodyLimitBytes: 4 * mib,
    status: 201,
    answer: sandbox.ForkedSandboxes,
    errors: [...one, 'CONFLICT', 'IDEMPOTENCY_MISMATCH', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  createCheckpoint: {
    method: 'POST',
    path: '/sandbox/{sandbox_id}/checkpoints',
    summary:
      'Save a running sandbox, which goes on, or a paused one, which stays so; answered when the instant is taken',
    access: 'key',
    body: checkpoint.CreateCheckpoint,
    bodyOptional: true,
    status: 201,
    answer: checkpoint.Checkpoint,
    errors: [...one, 'CONFLICT', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
  },
  listCheckpoints: {
    method: 'GET',
    path: '/sandbox/{sandbox_id}/checkpoints',
    summary: 'Checkpoints of a sandbox, oldest first; also of one that is gone',
    access: 'key',
    query: checkpoint.ListCheckpointsQuery,
    answer: checkpoint.CheckpointList,
    errors: one,
  },
  deleteSandboxCheckpoints: {
    method: 'DELETE',
    path: '/sandbox/{sandbox_id}/checkpoints',
    summary: 'Delete all checkpoints of a sandbox',
    access: 'key',
    answer: checkpoint.DeletedCheckpoints,
    errors: one,
  },
  listAllCheckpoints: {
    method: 'GET',
    path: '/sandbox/checkpoints',
    summary: 'Checkpoints of all sandboxes, oldest first',
    access: 'key',
    query: checkpoint.ListAllCheckpointsQuery,
    answer: checkpoint.CheckpointList,
    errors: [],
    addition: true,
  },
  getCheckpoint: {
    method: 'GET',
    path: '/sandbox/checkpoints/{checkpoint_id}',
    summary: 'One checkpoint',
    access: 'key',
    query: checkpoint.WaitCheckpointQuery,
    answer: checkpoint.Checkpoint,
    errors: ['NOT_FOUND'],
  },
  deleteCheckpoint: {
    method: 'DELETE',
    path: '/sandbox/checkpoints/{checkpoint_id}',
    summary: 'Delete a checkpoint; what was made from it lives on',
    access: 'key',
    answer: sandbox.Done,
    errors: ['NOT_FOUND', 'CONFLICT'],
  },
  batchGetCheckpoints: {
    method: 'POST',
    path: '/sandbox/checkpoints:batchGet',
    summary: 'Up to 100 checkpoints',
    access: 'key',
    body: checkpoint.BatchCheckpointsRequest,
    answer: checkpoint.BatchCheckpoints,
    errors: [],
  },
  rollbackSandbox: {
    method: 'POST',
    path: '/sandbox/{sandbox_id}/rollback',
    summary: 'Put a sandbox back to a checkpoint of it; what it did since is gone',
    access: 'key',
    body: checkpoint.RollbackSandbox,
    answer: sandbox.Sandbox,
    errors: [...one, 'NOT_FOUND', 'CONFLICT', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  getLogs: {
    method: 'GET',
    path: '/sandbox/{sandbox_id}/logs',
    summary: 'Output of the start command',
    access: 'key',
    answer: sandbox.SandboxLogs,
    errors: [...one, 'NODE_UNAVAILABLE', 'NODE_ERROR'],
  },
  getErrorContext: {
    method: 'GET',
    path: '/sandbox/{sandbox_id}/error-context',
    summary: 'Why a sandbox is as it is',
    access: 'key',
    answer: sandbox.ErrorContext,
    errors: one,
  },
  authorizeSandbox: {
    method: 'POST',
    path: '/sandbox/{sandbox_id}/auth',
    summary: 'A token for the gateway',
    access: 'key',
    body: sandbox.AuthorizeSandbox,
    bodyOptional: true,
    answer: sandbox.GatewayAuth,
    errors: one,
  },
  getEgressPolicy: {
    method: 'GET',
    path: '/sandbox/{sandbox_id}/egress-policy',
    summary: 'Network policy',
    access: 'key',
    answer: batch.EgressStatus,
    errors: one,
  },
  putEgressPolicy: {
    method: 'PUT',
    path: '/sandbox/{sandbox_id}/egress-policy',
    summary: 'Replace the network policy',
    access: 'key',
    body: batch.EgressUpdate,
    answer: batch.EgressStatus,
    errors: [...one, 'CONFLICT'],
  },
  listImages: {
    method: 'GET',
    path: '/images',
    summary: 'Images',
    access: 'key',
    query: image.ListImagesQuery,
    answer: image.ImageList,
    errors: ['NODE_UNAVAILABLE', 'NODE_ERROR'],
  },
  getImageBuild: {
    method: 'GET',
    path: '/images/build/{build_id}',
    summary: 'State of a build, as named by pendingImageBuildId',
    access: 'key',
    answer: image.ImageBuild,
    errors: ['NOT_FOUND'],
  },
  listLocalImages: {
    method: 'GET',
    path: '/images/local',
    summary: 'Images in the store of the node',
    access: 'key',
    answer: image.LocalImageList,
    errors: ['NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  inspectLocalImage: {
    method: 'GET',
    path: '/images/local/{reference}',
    summary: 'One image in the store of the node',
    access: 'key',
    answer: image.LocalImageDetails,
    errors: ['NOT_FOUND', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  pullLocalImage: {
    method: 'POST',
    path: '/images/local:pull',
    summary: 'Pull an image and build its rootfs',
    access: 'key',
    body: image.PullImage,
    answer: image.ImageProgressLine,
    ndjson: true,
    errors: ['NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  importLocalImage: {
    method: 'POST',
    path: '/images/local:import',
    summary: 'Import an archive under a name',
    access: 'admin',
    query: image.ImportImageQuery,
    streamBody: true,
    answer: image.ImageProgressLine,
    ndjson: true,
    errors: ['NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  pruneLocalImages: {
    method: 'POST',
    path: '/images/local:prune',
    summary: 'Remove what no sandbox uses',
    access: 'admin',
    answer: image.LocalImagesPruned,
    errors: ['NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  removeLocalImage: {
    method: 'DELETE',
    path: '/images/local/{reference}',
    summary: 'Remove an image from the store of the node',
    access: 'admin',
    answer: image.LocalImageRemoved,
    errors: ['NOT_FOUND', 'CONFLICT', 'NODE_UNAVAILABLE', 'NODE_ERROR'],
    addition: true,
  },
  whoAmI: {
    method: 'GET',
    path: '/user/whoami',
    summary: 'Who the key belongs to',
    access: 'key',
    answer: account.WhoAmI,
    errors: [],
  },
  listMyTeams: {
    method: 'GET',
    path: '/user/teams',
    summary: 'Teams of the caller',
    access: 'key',
    query: account.OffsetQuery,
    answer: account.TeamList,
    errors: [],
  },
  listTeamMembers: {
    method: 'GET',
    path: '/teams/{team_id}/members',
    summary: 'Members of a team',
    access: 'key',
    answer: account.TeamMemberList,
    errors: ['NOT_FOUND'],
  },
  listTeams: {
    method: 'GET',
    path: '/teams',
    summary: 'All teams',
    access: 'admin',
    query: account.OffsetQuery,
    answer: account.TeamList,
    errors: [],
    addition: true,
  },
  createTeam: {
    method: 'POST',
    path: '/teams',
    summary: 'Create a team; the caller becomes its admin',
    access: 'admin',
    body: account.CreateTeam,
    status: 201,
    answer: account.Team,
    errors: ['CONFLICT'],
    addition: true,
  },
  setTeamMember: {
    method: 'PUT',
    path: '/teams/{team_id}/members/{user}',
    summary: 'Add a member, or change the role of one; team and user by id or name',
    access: 'admin',
    body: account.SetMember,
    answer: account.TeamMember,
    errors: ['NOT_FOUND', 'CONFLICT'],
    addition: true,
  },
  removeTeamMember: {
    method: 'DELETE',
    path: '/teams/{team_id}/members/{user}',
    summary: 'Remove a member',
    access: 'admin',
    answer: sandbox.Done,
    errors: ['NOT_FOUND', 'CONFLICT'],
    addition: true,
  },
  listUsers: {
    method: 'GET',
    path: '/users',
    summary: 'All users',
    access: 'admin',
    query: account.OffsetQuery,
    answer: account.UserList,
    errors: [],
    addition: true,
  },
  createUser: {
    method: 'POST',
    path: '/users',
    summary: 'Create a user with a personal team',
    access: 'admin',
    body: account.CreateUser,
    status: 201,
    answer: account.User,
    errors: ['CONFLICT'],
    addition: true,
  },
  listKeys: {
    method: 'GET',
    path: '/keys',
    summary: 'Keys, without their secrets',
    access: 'admin',
    query: account.ListKeysQuery,
    answer: account.KeyList,
    errors: ['NOT_FOUND'],
    addition: true,
  },
  createKey: {
    method: 'POST',
    path: '/keys',
    summary: 'Create a key; it is shown this once',
    access: 'admin',
    body: account.CreateKey,
    status: 201,
    answer: account.CreatedKey,
    errors: ['NOT_FOUND'],
    addition: true,
  },
  revokeKey: {
    method: 'DELETE',
    path: '/keys/{key_id}',
    summary: 'Revoke a key, at once',
    access: 'admin',
    answer: sandbox.Done,
    errors: ['NOT_FOUND'],
    addition: true,
  },
  getStatus: {
    method: 'GET',
    path: '/status',
    summary: 'The server, its nodes and what runs',
    access: 'key',
    answer: system.SystemStatus,
    errors: [],
    addition: true,
  },
} as const satisfies Record<string, Route>;

/** Operation id of a route. */
export type OperationId = keyof typeof routes;

/** Every route as the general type, in the order of the table. */
export const routeList: readonly [OperationId, Route][] = Object.entries(routes) as [OperationId, Route][];
