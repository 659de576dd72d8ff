/**
 * Calls about many sandboxes at once and about their network policy: `status:batchGet`,
 * `background-jobs/status:batchGet`, `egress-policy`. Used by the control plane and the SDK.
 */
import { type Static, Type } from '@sinclair/typebox';
import { EgressEntries, SandboxStatus } from './sandbox.js';
import { Nullable, OneOf } from './schema.js';

/** Body of `POST /sandbox/status:batchGet`. */
export const BatchStatusRequest = Type.Object({
  sandbox_ids: Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
    minItems: 1,
    maxItems: 100,
    uniqueItems: true,
  }),
});
/** Body of `POST /sandbox/status:batchGet`. */
export type BatchStatusRequest = Static<typeof BatchStatusRequest>;

/** Its answer: every id asked for stands in one of the lists. */
export const BatchStatus = Type.Object({
  statuses: Type.Array(
    Type.Object({
      sandbox_id: Type.String(),
      status: SandboxStatus,
      error_type: Nullable(Type.String()),
      error_message: Nullable(Type.String()),
      pending_image_build_id: Nullable(Type.String()),
    }),
  ),
  errors: Type.Array(
    Type.Object({
      sandbox_id: Type.String(),
      code: OneOf('NOT_FOUND', 'FORBIDDEN', 'MANAGED'),
      message: Type.String(),
    }),
  ),
});
/** Statuses of many sandboxes. */
export type BatchStatus = Static<typeof BatchStatus>;

/** One background job, as Prime's SDK starts them: `/tmp/job_<job_id>.exit` holds its exit code. */
export const JobReference = Type.Object({
  sandbox_id: Type.String({ minLength: 1, maxLength: 64 }),
  job_id: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
});
/** One background job. */
export type JobReference = Static<typeof JobReference>;

/** Body of `POST /sandbox/background-jobs/status:batchGet`. */
export const BatchJobsRequest = Type.Object({
  jobs: Type.Array(JobReference, { minItems: 1, maxItems: 100 }),
});
/** Body of `POST /sandbox/background-jobs/status:batchGet`. */
export type BatchJobsRequest = Static<typeof BatchJobsRequest>;

/** Its answer. */
export const BatchJobs = Type.Object({
  statuses: Type.Array(
    Type.Object({
      sandbox_id: Type.String(),
      job_id: Type.String(),
      completed: Type.Boolean(),
      exit_code: Type.Optional(Type.Integer()),
    }),
  ),
  errors: Type.Array(
    Type.Object({
      sandbox_id: Type.String(),
      job_id: Type.String(),
      code: OneOf('NOT_FOUND', 'FORBIDDEN', 'MANAGED', 'NOT_VM', 'NOT_RUNNING', 'RUNTIME_ERROR'),
      message: Type.String(),
    }),
  ),
});
/** States of many background jobs. */
export type BatchJobs = Static<typeof BatchJobs>;

const Entries = Nullable(EgressEntries);

/** Body of `PUT /sandbox/{sandbox_id}/egress-policy`; replaces the policy as a whole. */
export const EgressUpdate = Type.Object({
  allowlist: Type.Optional(Entries),
  denylist: Type.Optional(Entries),
});
/** A new network policy. */
export type EgressUpdate = Static<typeof EgressUpdate>;

/** Answer of both `egress-policy` routes. */
export const EgressStatus = Type.Object({
  policy: Type.Object({ allowlist: Entries, denylist: Entries }),
  generation: Type.Integer(),
  applied_generation: Type.Integer(),
  applied: Type.Boolean(),
});
/** The policy asked for, and whether it is in force. */
export type EgressStatus = Static<typeof EgressStatus>;
