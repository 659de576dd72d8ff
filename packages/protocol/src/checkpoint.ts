/**
 * Checkpoints on the wire, `/api/v1/sandbox/…/checkpoints…`: snake_case throughout, as Prime's clients read them. Fields
 * that Prime does not have are marked "addition". Used by the control plane, the SDK and the OpenAPI document.
 */
import { type Static, Type } from '@sinclair/typebox';
import { Id, Nullable, OneOf, Timestamp } from './schema.js';

/** States of a checkpoint; see `docs/state-machines.md`. Only a durable one can be restored. */
export const CheckpointState = OneOf('PENDING', 'FROZEN', 'DURABLE', 'FAILED', 'DELETING');
/** States of a checkpoint. */
export type CheckpointState = Static<typeof CheckpointState>;

/**
 * What its disk is when it is restored without memory. `application`: file systems were frozen, nothing is cut off.
 * `crash`: as after a loss of power; what the guest had confirmed as written is there.
 */
export const CheckpointConsistency = OneOf('application', 'crash');
/** What the disk of a checkpoint is. */
export type CheckpointConsistency = Static<typeof CheckpointConsistency>;

/** Body of `POST /sandbox/{sandbox_id}/checkpoints`, which may be absent. */
export const CreateCheckpoint = Type.Object({
  ttl_seconds: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 31_536_000,
      description: 'It is deleted after this; absent: never.',
    }),
  ),
  with_memory: Type.Optional(
    Type.Boolean({
      description: 'Addition: memory and processes too, of the same instant. Default: disk alone.',
    }),
  ),
});
/** Body of `POST /sandbox/{sandbox_id}/checkpoints`. */
export type CreateCheckpoint = Static<typeof CreateCheckpoint>;

/** A checkpoint. */
export const Checkpoint = Type.Object({
  id: Id,
  sandbox_id: Id,
  parent_id: Nullable(Id),
  team_id: Nullable(Id),
  state: CheckpointState,
  depth: Type.Integer({ description: 'Checkpoints that it came after, one above the other.' }),
  docker_image: Type.String(),
  disk_size_bytes: Nullable(Type.Integer()),
  stored_bytes: Nullable(Type.Integer({ description: 'own_bytes and shared_bytes together.' })),
  occupied_bytes: Type.Optional(Type.Integer({ description: 'As own_bytes.' })),
  error: Nullable(Type.String({ description: 'Why it failed, and what to do.' })),
  created_at: Timestamp,
  updated_at: Timestamp,
  user_id: Type.String({ description: 'Addition.' }),
  with_memory: Type.Boolean({ description: 'Addition.' }),
  consistency: Nullable(
    Type.Unsafe<CheckpointConsistency>({
      ...CheckpointConsistency,
      description: 'Addition: what its disk is when restored without memory. null: not known yet.',
    }),
  ),
  own_bytes: Nullable(
    Type.Integer({
      description: 'Addition: bytes on the disk that go with it; renewed when it is asked for.',
    }),
  ),
  shared_bytes: Nullable(
    Type.Integer({ description: 'Addition: bytes that sandboxes or other checkpoints need as well.' }),
  ),
  expires_at: Nullable(Type.String({ description: 'Addition: when its ttl_seconds are over.' })),
  node_id: Nullable(
    Type.String({ description: 'Addition: where its files are, and sandboxes from it run.' }),
  ),
});
/** A checkpoint. */
export type Checkpoint = Static<typeof Checkpoint>;

/** Query of `GET /sandbox/{sandbox_id}/checkpoints`. */
export const ListCheckpointsQuery = Type.Object({ checkpoint_id: Type.Optional(Id) });
/** Query of `GET /sandbox/{sandbox_id}/checkpoints`. */
export type ListCheckpointsQuery = Static<typeof ListCheckpointsQuery>;

/** Query of `GET /sandbox/checkpoints`. */
export const ListAllCheckpointsQuery = Type.Object({
  id_prefix: Type.Optional(Type.String({ minLength: 1, maxLength: 64, description: 'Ids that begin so.' })),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1000, default: 1000, description: 'The newest of them.' }),
  ),
});
/** Query of `GET /sandbox/checkpoints`. */
export type ListAllCheckpointsQuery = Static<typeof ListAllCheckpointsQuery>;

/** Query of `GET /sandbox/checkpoints/{checkpoint_id}`. */
export const WaitCheckpointQuery = Type.Object({
  wait: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: 60,
      description: 'Addition: seconds to wait until it is DURABLE or FAILED before answering.',
    }),
  ),
});
/** Query of `GET /sandbox/checkpoints/{checkpoint_id}`. */
export type WaitCheckpointQuery = Static<typeof WaitCheckpointQuery>;

/** Checkpoints, oldest first. */
export const CheckpointList = Type.Object({ checkpoints: Type.Array(Checkpoint) });
/** Checkpoints, oldest first. */
export type CheckpointList = Static<typeof CheckpointList>;

/** Body of `POST /sandbox/checkpoints:batchGet`. */
export const BatchCheckpointsRequest = Type.Object({
  checkpoint_ids: Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
    minItems: 1,
    maxItems: 100,
    uniqueItems: true,
  }),
});
/** Body of `POST /sandbox/checkpoints:batchGet`. */
export type BatchCheckpointsRequest = Static<typeof BatchCheckpointsRequest>;

/** Its answer: every id asked for stands in one of the lists. */
export const BatchCheckpoints = Type.Object({
  checkpoints: Type.Array(Checkpoint),
  errors: Type.Array(
    Type.Object({ checkpoint_id: Type.String(), code: OneOf('NOT_FOUND'), message: Type.String() }),
  ),
});
/** Many checkpoints. */
export type BatchCheckpoints = Static<typeof BatchCheckpoints>;

/** Answer of `DELETE /sandbox/{sandbox_id}/checkpoints`. */
export const DeletedCheckpoints = Type.Object({
  deleted: Type.Array(Type.String()),
  errors: Type.Array(
    Type.Object({
      checkpoint_id: Type.String(),
      code: OneOf('NOT_FOUND', 'CONFLICT'),
      message: Type.String(),
    }),
  ),
});
/** What has become of a deletion of many. */
export type DeletedCheckpoints = Static<typeof DeletedCheckpoints>;

/** Body of `POST /sandbox/{sandbox_id}/rollback`. */
export const RollbackSandbox = Type.Object({
  checkpoint_id: Id,
  restore_memory: Type.Optional(
    Type.Boolean({
      description: 'Absent: if the checkpoint has memory. false: its disk alone; the machine boots with it.',
    }),
  ),
});
/** Body of `POST /sandbox/{sandbox_id}/rollback`. */
export type RollbackSandbox = Static<typeof RollbackSandbox>;
