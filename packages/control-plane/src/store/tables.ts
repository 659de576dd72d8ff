/** The tables as Kysely sees them. Times are milliseconds since 1970; structured values are JSON text. */
import type { Generated } from 'kysely';

/** A sandbox. `record` holds the {@link SandboxRecord} as JSON; the other columns are what is searched by. */
export interface SandboxRow {
  /** Order of creation; lists and the queue go by it. */
  seq: Generated<number>;
  id: string;
  owner_id: string;
  team_id: string | null;
  state: string;
  /** Wire status, renewed with every write and by reconcile for lost ones. */
  wire_status: string;
  node_id: string | null;
  ended_at: number | null;
  record: string;
  /** Encrypted secrets, base64; null: none. */
  secrets: string | null;
}

/** One label of a sandbox. */
export interface LabelRow {
  sandbox_id: string;
  label: string;
}

/** Room booked on a node. */
export interface ReservationRow {
  sandbox_id: string;
  node_id: string;
  vcpus: number;
  memory_mib: number;
  disk_gib: number;
}

/** A create that has been answered, so that its repetition makes nothing new. */
export interface IdempotencyRow {
  user_id: string;
  key: string;
  body_hash: string;
  sandbox_id: string;
}

/** A node as last seen; `info` is NodeInfo as JSON. */
export interface NodeRow {
  id: string;
  info: string;
  seen_at: number;
}

/** A build of an image that a sandbox waits or waited for. */
export interface ImageBuildRow {
  id: string;
  image: string;
  status: string;
  error: string | null;
  created_at: number;
  completed_at: number | null;
}

/** A checkpoint. `record` holds the {@link CheckpointRecord} as JSON; the other columns are what is searched by. */
export interface CheckpointRow {
  /** Order of creation; lists go by it. */
  seq: Generated<number>;
  id: string;
  sandbox_id: string;
  owner_id: string;
  team_id: string | null;
  state: string;
  node_id: string;
  expires_at: number | null;
  updated_at: number;
  record: string;
  /** Encrypted secrets of its sandbox, base64; null: none. */
  secrets: string | null;
}

/** A user. */
export interface UserRow {
  id: string;
  name: string;
  is_admin: number;
  created_at: number;
}

/** A team. */
export interface TeamRow {
  id: string;
  name: string;
  /** Id of the user whose personal team it is. */
  personal_of: string | null;
  created_at: number;
}

/** A member of a team. */
export interface MemberRow {
  team_id: string;
  user_id: string;
  role: 'admin' | 'member';
  joined_at: number;
}

/** An API key; only its SHA-256 is kept. */
export interface KeyRow {
  id: string;
  user_id: string;
  name: string;
  prefix: string;
  hash: string;
  created_at: number;
  last_used_at: number | null;
  revoked_at: number | null;
}

/** All tables. */
export interface Tables {
  sandboxes: SandboxRow;
  sandbox_labels: LabelRow;
  reservations: ReservationRow;
  idempotency: IdempotencyRow;
  nodes: NodeRow;
  image_builds: ImageBuildRow;
  checkpoints: CheckpointRow;
  users: UserRow;
  teams: TeamRow;
  team_members: MemberRow;
  api_keys: KeyRow;
}
