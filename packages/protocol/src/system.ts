/** `GET /status` and `GET /healthz`: additions, what the CLI's `status` prints. */
import { type Static, Type } from '@sinclair/typebox';
import { Nullable, OneOf } from './schema.js';

/** A node as the control plane knows it. */
export const NodeStatus = Type.Object({
  nodeId: Type.String(),
  reachable: Type.Boolean(),
  version: Type.String(),
  accelerator: OneOf('kvm', 'tcg', 'fake'),
  acceleratorReason: Type.String(),
  networkMode: OneOf('tap', 'user', 'none'),
  offer: Type.Object({ vcpus: Type.Number(), memoryMiB: Type.Number(), diskGiB: Type.Number() }),
  reserved: Type.Object({ vcpus: Type.Number(), memoryMiB: Type.Number(), diskGiB: Type.Number() }),
  warnings: Type.Array(Type.String()),
});
/** A node as the control plane knows it. */
export type NodeStatus = Static<typeof NodeStatus>;

/** Answer of `GET /status`. Users who are not admins see counts of their own, no processes, machines or folders. */
export const SystemStatus = Type.Object({
  version: Type.String(),
  url: Type.String(),
  /** Of the first node; null while none has been reached. */
  accelerator: Nullable(OneOf('kvm', 'tcg', 'fake')),
  acceleratorReason: Nullable(Type.String()),
  networkMode: Nullable(OneOf('tap', 'user', 'none')),
  dataFolder: Nullable(Type.String()),
  processes: Type.Array(Type.Object({ pid: Type.Integer(), role: Type.String() })),
  machines: Type.Array(Type.Object({ id: Type.String(), pid: Type.Integer() })),
  nodes: Type.Array(NodeStatus),
  /** Sandboxes by wire status, live ones only, and how many wait for room. */
  counts: Type.Object({
    pending: Type.Integer(),
    provisioning: Type.Integer(),
    running: Type.Integer(),
    paused: Type.Integer(),
    queued: Type.Integer(),
  }),
  warnings: Type.Array(Type.String()),
});
/** Answer of `GET /status`. */
export type SystemStatus = Static<typeof SystemStatus>;

/** Answer of `GET /healthz`. */
export const Health = Type.Object({ status: Type.Literal('ok'), version: Type.String() });
/** Answer of `GET /healthz`. */
export type Health = Static<typeof Health>;
