/**
 * Sandboxes on the wire, `/api/v1/sandbox…`: requests in snake_case, sandbox objects in camelCase,
 * as Prime's clients of all generations read them. Fields that Prime does not have are marked
 * "addition". Used by the control plane, the SDK and the OpenAPI document.
 */
import { type Static, Type } from '@sinclair/typebox';
import { maxEgressEntries } from './egress.js';
import { Id, Nullable, OneOf, Timestamp } from './schema.js';
import { View } from './view.js';

/** Status names of the wire; see `docs/state-machines.md` for the states behind them. */
export const SandboxStatus = OneOf(
  'PENDING',
  'PROVISIONING',
  'RUNNING',
  'PAUSED',
  'ERROR',
  'TERMINATED',
  'TIMEOUT',
);
/** Status names of the wire. */
export type SandboxStatus = Static<typeof SandboxStatus>;

/** Statuses of a sandbox that still lives: what `is_active=true` selects. */
export const activeStatuses: readonly SandboxStatus[] = ['PENDING', 'PROVISIONING', 'RUNNING', 'PAUSED'];

/** A start command as program and arguments. */
export const StartCommand = Type.Object(
  {
    executable: Type.String({ minLength: 1, maxLength: 4096 }),
    args: Type.Optional(Type.Array(Type.String({ maxLength: 131_072 }), { maxItems: 1024 })),
  },
  { additionalProperties: false },
);
/** A start command as program and arguments. */
export type StartCommand = Static<typeof StartCommand>;

/** One list of a network policy. */
export const EgressEntries = Type.Array(Type.String({ minLength: 1, maxLength: 300 }), {
  maxItems: maxEgressEntries,
});
const StringMap = Type.Record(Type.String(), Type.String({ maxLength: 131_072 }));
const Labels = Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { maxItems: 100 });

/** Body of `POST /sandbox`. Unknown fields are ignored, `null` means absent. */
export const CreateSandbox = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 100 }),
  docker_image: Type.Optional(Type.String({ minLength: 1, maxLength: 512 })),
  checkpoint_id: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 64,
      description:
        'In place of docker_image and disk_size_gb: begin with what a checkpoint holds. Environment, secrets, view, network policy and init are its sandbox’s where the body says nothing.',
    }),
  ),
  restore_memory: Type.Optional(
    Type.Boolean({
      description: 'Go on with the memory of the checkpoint, processes and all. Default: boot from its disk.',
    }),
  ),
  arch: Type.Optional(OneOf('amd64', 'arm64')),
  start_command: Type.Optional(
    Type.Union([Type.String({ minLength: 1, maxLength: 131_072 }), StartCommand], {
      description: 'A string is run by /bin/sh -c. Absent: nothing is started.',
    }),
  ),
  entrypoint: Type.Optional(
    Type.Boolean({ description: "Addition: start the image's own ENTRYPOINT and CMD." }),
  ),
  init: Type.Optional(
    Type.Boolean({
      description:
        "Addition: the image's own /sbin/init becomes process 1. A start command that is an init (/sbin/init, /lib/systemd/systemd, …) means the same.",
    }),
  ),
  cpu_cores: Type.Optional(Type.Number({ minimum: 0.1, maximum: 16, default: 1 })),
  memory_gb: Type.Optional(Type.Number({ minimum: 0.1, maximum: 64, default: 2, description: 'GiB' })),
  disk_size_gb: Type.Optional(Type.Number({ minimum: 0.1, maximum: 1000, default: 10, description: 'GiB' })),
  gpu_count: Type.Optional(Type.Integer({ minimum: 0, maximum: 8 })),
  gpu_type: Type.Optional(Type.String({ maxLength: 64 })),
  vm: Type.Optional(Type.Boolean()),
  network_access: Type.Optional(Type.Boolean({ description: 'false: deny all.' })),
  network_allowlist: Type.Optional(EgressEntries),
  network_denylist: Type.Optional(EgressEntries),
  timeout_minutes: Type.Optional(
    Type.Integer({
      maximum: 525_600,
      default: 60,
      description: 'Lifetime; negative: unlimited; 0 is refused.',
    }),
  ),
  idle_timeout_minutes: Type.Optional(Type.Integer({ minimum: 1, maximum: 525_600 })),
  // Addition: what becomes of it after idle_timeout_minutes without use. A paused one goes on with its next use; without
  // idle_timeout_minutes it is paused after 15.
  idle_action: Type.Optional(OneOf('end', 'pause')),
  environment_vars: Type.Optional(StringMap),
  secrets: Type.Optional(StringMap),
  labels: Type.Optional(Labels),
  team_id: Type.Optional(Id),
  region: Type.Optional(Type.String({ maxLength: 64 })),
  advanced_configs: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  registry_credentials_id: Type.Optional(Type.String({ maxLength: 64 })),
  guaranteed: Type.Optional(Type.Boolean()),
  volumes: Type.Optional(Type.Array(Type.Unknown(), { maxItems: 16 })),
  idempotency_key: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
  // Addition: the view of every exec that names none.
  view: Type.Optional(View),
});
/** Body of `POST /sandbox`. */
export type CreateSandbox = Static<typeof CreateSandbox>;

/** Most copies that one fork makes. */
export const maxForkCount = 64;

/** Body of `POST /sandbox/{sandbox_id}/fork`, which may be absent. What is not said is as the source has it. */
export const ForkSandbox = Type.Object({
  count: Type.Optional(Type.Integer({ minimum: 1, maximum: maxForkCount, default: 1 })),
  name: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  labels: Type.Optional(Labels),
  environment_vars: Type.Optional(
    Type.Record(Type.String(), Type.String({ maxLength: 131_072 }), {
      description: "Over the source's, for commands that are started from now on.",
    }),
  ),
  timeout_minutes: Type.Optional(Type.Integer({ maximum: 525_600, description: 'As in a create.' })),
  allow_partial: Type.Optional(
    Type.Boolean({ description: 'Keep the copies that run when others do not. Default: all or none.' }),
  ),
  idempotency_key: Type.Optional(Type.String({ minLength: 1, maxLength: 120 })),
});
/** Body of `POST /sandbox/{sandbox_id}/fork`. */
export type ForkSandbox = Static<typeof ForkSandbox>;

/** Query of `POST /sandbox` and `GET /sandbox/{sandbox_id}`. */
export const WaitQuery = Type.Object({
  wait: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: 60,
      description:
        'Addition: seconds to wait for RUNNING or an end before answering. Without it a create waits a moment only.',
    }),
  ),
});
/** Query of `POST /sandbox` and `GET /sandbox/{sandbox_id}`. */
export type WaitQuery = Static<typeof WaitQuery>;

/** Body of `POST /sandbox/{sandbox_id}/auth`, which may be absent. */
export const AuthorizeSandbox = Type.Object({
  in_view: Type.Optional(
    Type.Boolean({
      description:
        'Addition: a token for an agent: it runs commands in the default view of the sandbox, and can do nothing else.',
    }),
  ),
});
/** Body of `POST /sandbox/{sandbox_id}/auth`. */
export type AuthorizeSandbox = Static<typeof AuthorizeSandbox>;

/** Answer of `POST /sandbox/{sandbox_id}/auth`: how to reach a sandbox through the gateway. */
export const GatewayAuth = Type.Object({
  token: Type.String(),
  gateway_url: Type.String(),
  user_ns: Type.String(),
  job_id: Type.String(),
  expires_at: Timestamp,
  is_vm: Type.Boolean(),
  in_view: Type.Optional(
    Type.Boolean({ description: 'Addition: true for a token that acts in the default view only.' }),
  ),
});
/** How to reach a sandbox through the gateway. */
export type GatewayAuth = Static<typeof GatewayAuth>;

/** Addition: what the machine really gets, and what is booked for it. */
export const EffectiveShape = Type.Object({
  vcpus: Type.Integer(),
  memoryMiB: Type.Integer(),
  diskGiB: Type.Number(),
});
/** What the machine really gets. */
export type EffectiveShape = Static<typeof EffectiveShape>;

/** A sandbox. */
export const Sandbox = Type.Object({
  id: Id,
  name: Type.String(),
  dockerImage: Type.String(),
  startCommand: Nullable(Type.Union([StartCommand, Type.String()])),
  cpuCores: Type.Number(),
  memoryGB: Type.Number(),
  diskSizeGB: Type.Number(),
  diskMountPath: Type.String(),
  gpuCount: Type.Integer(),
  gpuType: Nullable(Type.String()),
  vm: Type.Boolean(),
  networkAccess: Type.Boolean(),
  networkAllowlist: Nullable(Type.Array(Type.String())),
  networkDenylist: Nullable(Type.Array(Type.String())),
  status: SandboxStatus,
  timeoutMinutes: Type.Integer(),
  idleTimeoutMinutes: Nullable(Type.Integer()),
  // Addition.
  idleAction: OneOf('end', 'pause'),
  terminationReason: Nullable(Type.String()),
  environmentVars: Type.Record(Type.String(), Type.String()),
  secrets: Type.Record(Type.String(), Type.String(), { description: 'Values are always masked.' }),
  advancedConfigs: Nullable(Type.Record(Type.String(), Type.Unknown())),
  labels: Type.Array(Type.String()),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  startedAt: Nullable(Timestamp),
  terminatedAt: Nullable(Timestamp),
  exitCode: Nullable(Type.Integer()),
  errorType: Nullable(Type.String()),
  errorMessage: Nullable(Type.String()),
  userId: Id,
  teamId: Nullable(Id),
  region: Nullable(Type.String()),
  registryCredentialsId: Nullable(Type.String()),
  pendingImageBuildId: Nullable(Type.String()),
  entrypoint: Type.Boolean({
    description: "Addition: the image's ENTRYPOINT and CMD are the start command.",
  }),
  init: Type.Boolean({ description: "Addition: the image's own init was asked for as process 1." }),
  effective: EffectiveShape,
  generation: Type.Integer({ description: 'Addition.' }),
  nodeId: Nullable(Type.String({ description: 'Addition.' })),
  imageDigest: Nullable(Type.String({ description: 'Addition.' })),
  checkpointId: Nullable(
    Type.String({ description: 'Addition: the checkpoint that it began with, or was last rolled back to.' }),
  ),
  stage: Nullable(Type.String({ description: 'Addition: what a sandbox that is not running yet is doing.' })),
  queuePosition: Nullable(
    Type.Integer({ description: 'Addition: 1 is next; null when not waiting for room.' }),
  ),
  timings: Type.Record(Type.String(), Type.Number(), {
    description: 'Addition: milliseconds of each stage of the start.',
  }),
  view: Nullable(View),
  warnings: Type.Array(Type.String(), { description: 'Addition: what is weaker than asked for, and why.' }),
  gatewayAuth: Type.Optional(GatewayAuth),
});
/** A sandbox. */
export type Sandbox = Static<typeof Sandbox>;

/** Query of `GET /sandbox`. */
export const ListSandboxesQuery = Type.Object({
  page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000, default: 1 })),
  per_page: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 50 })),
  team_id: Type.Optional(Id),
  user_id: Type.Optional(Id),
  status: Type.Optional(SandboxStatus),
  labels: Type.Optional(
    Type.Array(Type.String({ maxLength: 256 }), { maxItems: 50, description: 'Must have all of them.' }),
  ),
  is_active: Type.Optional(Type.Boolean({ description: 'true: only live ones; false: no filter.' })),
  id_prefix: Type.Optional(
    Type.String({ minLength: 1, maxLength: 64, description: 'Addition: ids that begin so.' }),
  ),
});
/** Query of `GET /sandbox`. */
export type ListSandboxesQuery = Static<typeof ListSandboxesQuery>;

/** Answer of `GET /sandbox`. Pages taken one after another show each sandbox once. */
export const SandboxList = Type.Object({
  sandboxes: Type.Array(Sandbox),
  total: Type.Integer(),
  page: Type.Integer(),
  perPage: Type.Integer(),
  hasNext: Type.Boolean(),
  per_page: Type.Integer(),
  has_next: Type.Boolean(),
});
/** Answer of `GET /sandbox`. */
export type SandboxList = Static<typeof SandboxList>;

/** Answer of a fork. */
export const ForkedSandboxes = Type.Object({
  sandboxes: Type.Array(Sandbox),
  errors: Type.Array(
    Type.Object({
      index: Type.Integer({ description: 'Which of the copies, from 0.' }),
      code: Type.String(),
      message: Type.String(),
    }),
    { description: 'Copies that do not run; empty without allow_partial.' },
  ),
});
/** Answer of a fork. */
export type ForkedSandboxes = Static<typeof ForkedSandboxes>;

/** Answer of a delete. */
export const Done = Type.Object({ success: Type.Boolean(), message: Type.String() });
/** Answer of a delete. */
export type Done = Static<typeof Done>;

/** Body of `DELETE /sandbox`. */
export const BulkDelete = Type.Object({
  sandbox_ids: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 64 }), { minItems: 1, maxItems: 500 }),
  ),
  labels: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { minItems: 1, maxItems: 50 }),
  ),
  team_id: Type.Optional(Id),
  user_id: Type.Optional(Id),
  all_users: Type.Optional(Type.Boolean()),
});
/** Body of `DELETE /sandbox`. */
export type BulkDelete = Static<typeof BulkDelete>;

/** Answer of `DELETE /sandbox`. */
export const BulkDeleted = Type.Object({
  succeeded: Type.Array(Type.String()),
  failed: Type.Array(Type.Object({ sandbox_id: Type.String(), error: Type.String() })),
  message: Type.String(),
});
/** Answer of `DELETE /sandbox`. */
export type BulkDeleted = Static<typeof BulkDeleted>;

/** Answer of `GET /sandbox/{sandbox_id}/logs`: output of the start command. */
export const SandboxLogs = Type.Object({ logs: Type.String() });
/** Output of the start command. */
export type SandboxLogs = Static<typeof SandboxLogs>;

/** Answer of `GET /sandbox/{sandbox_id}/error-context`. */
export const ErrorContext = Type.Object({
  status: SandboxStatus,
  errorType: Nullable(Type.String()),
  errorMessage: Nullable(Type.String()),
});
/** Why a sandbox is as it is. */
export type ErrorContext = Static<typeof ErrorContext>;
