/**
 * Control plane -> node agent: HTTP/1.1 with JSON, on a unix socket on one machine, on TCP in a
 * fleet. Commands go down in requests; facts come up in answers and on the report stream that the
 * control plane opens.
 *
 * | Method, path | Request | Answer |
 * |---|---|---|
 * | GET /v1/node | | {@link NodeInfo} |
 * | GET /v1/snapshots | | `{snapshots: SnapshotUse[]}`, {@link SnapshotUse}: what is kept of saved machines, for whom |
 * | PUT /v1/sandboxes/{id} | {@link NodeSandboxSpec} | 202 {@link SandboxReport}; the same generation again is answered alike; a lower one 409; one the node deleted 409 |
 * | DELETE /v1/sandboxes/{id}?generation=N | | 200 {@link SandboxReport} once machine, disk and network are gone; unknown is 200 with state `stopped` |
 * | GET /v1/sandboxes | | `{sandboxes: SandboxReport[]}` |
 * | GET /v1/reports | | NDJSON, never ends: all sandboxes, then `{"synced":true}`, then one line for each change and `{"keepalive":true}` every 10 s |
 * | POST /v1/sandboxes/{id}/pause?generation=N | | {@link SandboxReport} once its machine is saved and gone; 409 when it does not run, 507 for want of room: it runs on then |
 * | POST /v1/sandboxes/{id}/resume | {@link NodeResume} | 202 {@link SandboxReport}: it gets a new machine; the same generation again is answered alike; 409 when it is not paused, nor running with a checkpoint to go back to: nothing has changed then |
 * | POST /v1/sandboxes/{id}/fork | {@link NodeFork} | 202 `{reports: SandboxReport[]}`: the copies are saved and start; 409 when it does not run, 507 for want of room: there is no copy then |
 * | POST /v1/sandboxes/{id}/checkpoints | {@link NodeCheckpointOrder} | {@link NodeCheckpoint} once the instant is taken and the sandbox runs on; the same id again is answered alike; 409 when it does not run, 507 for want of room: there is none then |
 * | GET /v1/checkpoints | | `{checkpoints: NodeCheckpoint[]}` |
 * | GET /v1/checkpoints/{cid} | | {@link NodeCheckpoint}; 404 |
 * | POST /v1/checkpoints/{cid}/settle | | {@link NodeCheckpoint} once it is on the disk for good, with checksums; at once when it is |
 * | POST /v1/checkpoints/{cid}/check?memory=1 | | {@link NodeCheckpoint} when it can be restored; 409 with the reason when not |
 * | DELETE /v1/checkpoints/{cid} | | `{}`, also of one that is not here; files go with their last reader |
 * | POST /v1/sandboxes/{id}/acknowledge?generation=N | | `{}`: an end has been recorded, the node may forget it |
 * | GET /v1/sandboxes/{id}/logs | | `{logs: string}` of the start command, newest 1 MiB |
 * | POST /v1/sandboxes/{id}/read-file | `{path, offset?, length?}` | `{found: boolean, contentBase64?: string, size?: number}` |
 * | PUT /v1/sandboxes/{id}/egress-policy | {@link EgressPolicy} with `generation` | `{appliedGeneration}` once in force |
 * | GET /v1/images | | `{images: ImageInfo[]}` |
 * | GET /v1/images/{reference, url-encoded} | | {@link ImageDetails} |
 * | POST /v1/images:pull | `{reference, auth?}`, {@link RegistryAuth} | NDJSON of {@link ImageProgress}, last `{done: ImageInfo}` or `{error: {code, message}}` |
 * | POST /v1/images:import?name= | archive bytes | the same |
 * | DELETE /v1/images/{reference} | | `{removed: true}`; 409 in use |
 * | POST /v1/images:prune | | `{removed: string[], freedBytes}` |
 * | /gw/{user_ns}/{id}/… | the gateway's public routes | see `gateway.ts` |
 * | GET /healthz, GET /metrics | | |
 */
import type { CheckpointConsistency } from './checkpoint.js';
import type { EgressPolicy } from './egress.js';
import type { GuestView } from './guest-api.js';
import type { RegistryAuth } from './image.js';

/** What a node offers and runs. */
export interface NodeInfo {
  nodeId: string;
  version: string;
  pid: number;
  /** `kvm` or `tcg`; `fake` for the test driver. */
  accelerator: 'kvm' | 'tcg' | 'fake';
  acceleratorReason: string;
  networkMode: 'tap' | 'user' | 'none';
  dataFolder: string;
  /** After the over-commit factors; of the disk what is free and what sandboxes take. */
  offer: { vcpus: number; memoryMiB: number; diskGiB: number };
  /** Disk that it could offer if nothing else lay on it: what fits may wait for it. Absent: as offered. */
  diskTotalGiB?: number;
  warnings: string[];
  /** Our other processes on this node. */
  processes: { pid: number; role: string }[];
  machines: { id: string; pid: number }[];
}

/** What is kept of saved machines for one who needs it: a sandbox, by its id, or what its name says. */
export interface SnapshotUse {
  holder: string;
  /** Below its disk. */
  layers: number;
  /** Go with it. */
  ownBytes: number;
  /** Others need them too. Blocks that files share by reflink count in each. */
  sharedBytes: number;
}

/** Everything a node needs to run a sandbox. Sent once for each generation. */
export interface NodeSandboxSpec {
  sandboxId: string;
  generation: number;
  /** Image reference as the user gave it. */
  image: string;
  vcpus: number;
  memoryMiB: number;
  /** Fraction of CPU when the request was not whole; 0 for no limit. */
  cpuLimit: number;
  diskBytes: number;
  hostname: string;
  env: Record<string, string>;
  secrets: Record<string, string>;
  /** Absent: nothing is started. `entrypoint: true`: the image's ENTRYPOINT and CMD. */
  startCommand?: { argv: string[] } | { entrypoint: true };
  /** The image's init becomes process 1; a start command that is an init means the same. Absent: the guest agent stays that. */
  init?: boolean;
  egress: EgressPolicy;
  /** Ends the sandbox at this wall-clock time, ms since 1970; absent: never. */
  deadlineUnixMs?: number;
  /** Ends it after this long without activity; absent: never. */
  idleTimeoutMs?: number;
  /** It is paused then, not ended. */
  idleAction?: 'pause';
  /** Lowest generation whose gateway tokens are good: a resume raises the generation and leaves tokens alone. Absent: this one. */
  tokensFrom?: number;
  /** Credentials for the registry of `image`. */
  registryAuth?: RegistryAuth;
  /** Default view: made before the sandbox runs, and the view of every exec that names none. */
  view?: GuestView;
  /** It begins with this checkpoint, not with its image. */
  checkpoint?: NodeCheckpointUse;
}

/** What of a checkpoint is restored. */
export interface NodeCheckpointUse {
  id: string;
  /** Memory, devices and disk; else the disk alone, and the machine boots. */
  memory: boolean;
}

/** Makes a checkpoint of a running sandbox, which goes on, or of a paused one, which stays so. */
export interface NodeCheckpointOrder {
  /** Of the sandbox. */
  generation: number;
  checkpointId: string;
  memory: boolean;
}

/** A checkpoint on a node. */
export interface NodeCheckpoint {
  id: string;
  sandboxId: string;
  memory: boolean;
  consistency: CheckpointConsistency;
  /** Why the disk alone is no better than after a loss of power, where `consistency` is `crash`. */
  note?: string;
  /** On the disk for good, with checksums. */
  durable: boolean;
  /** Size of the block device. */
  diskBytes: number;
  /** Bytes that nobody else needs, and those that others need as well. */
  ownBytes: number;
  sharedBytes: number;
  /** Its memory goes on only where this is the node's own: QEMU, accelerator, processor, device model. */
  memoryFingerprint?: string;
  createdAtUnixMs: number;
}

/** Gives a paused sandbox a machine again; with a checkpoint also a running one, whose machine ends before. */
export interface NodeResume {
  /** Higher than the one that was paused: that is never to have a machine again. */
  generation: number;
  /** It goes on from there, not from where it is. */
  checkpoint?: NodeCheckpointUse;
}

/** Makes copies of a running sandbox, which goes on. */
export interface NodeFork {
  /** Of the source. */
  generation: number;
  /** Each as it is to be; image and shape are the source's. */
  copies: NodeSandboxSpec[];
}

/** Stages of a create, in order; keys of {@link SandboxReport.timings}, in milliseconds. */
export type StartStage = 'queue' | 'image' | 'template' | 'disk' | 'network' | 'restore' | 'mount' | 'ready';

/** Why a sandbox has ended: `errorType` on the wire. */
export type EndReason =
  | 'DELETED'
  | 'TIMEOUT'
  | 'IDLE_TIMEOUT'
  | 'IMAGE_PULL_FAILED'
  | 'IMAGE_INVALID'
  | 'START_FAILED'
  | 'VIEW_INVALID'
  | 'OOM_KILLED'
  | 'HOST_OUT_OF_MEMORY'
  | 'MACHINE_ENDED'
  | 'GUEST_PANIC'
  | 'GUEST_SHUTDOWN'
  | 'INIT_NOT_FOUND'
  | 'REBOOT_LOOP'
  | 'AGENT_KILLED'
  | 'CAPACITY'
  | 'NODE_LOST'
  | 'CHECKPOINT_INVALID';

/** A fact about one sandbox on a node. */
export interface SandboxReport {
  sandboxId: string;
  generation: number;
  state:
    | 'pending'
    | 'starting'
    | 'running'
    | 'pausing'
    | 'paused'
    | 'resuming'
    | 'stopping'
    | 'stopped'
    | 'failed';
  /** It is paused, and somebody waits for an answer of it. */
  wanted?: true;
  /** What it is doing while pending or starting. */
  stage?: StartStage;
  /** Set while the image is pulled or built: the id of that build. */
  imageBuildId?: string;
  /** Resolved digest of the image. */
  imageDigest?: string;
  timings: Partial<Record<StartStage, number>>;
  startedAtUnixMs?: number;
  endedAtUnixMs?: number;
  reason?: EndReason;
  /** For the user: what failed, why, what to do. Of a paused one: why it could not be resumed. */
  message?: string;
  /** Exit code of the start command once it has ended. */
  exitCode?: number;
  /** Last exec, upload, download, read or live process; ms since 1970. */
  lastActivityUnixMs?: number;
  /** Of the machine process, while there is one. */
  pid?: number;
  /** Newest 64 KiB of the start command's output, in the report of an end. */
  logTail?: string;
  /** In force now. */
  egressGeneration?: number;
  warnings?: string[];
}

/** One image in a node's store. */
export interface ImageInfo {
  reference: string;
  digest: string;
  /** Bytes of the rootfs on disk, 0 before it is built. */
  rootfsBytes: number;
  /** Compressed bytes of its layers. */
  contentBytes: number;
  createdAt: string;
  /** Sandboxes that hold it. */
  inUseBy: number;
  labels: Record<string, string>;
}

/** `image inspect`. */
export interface ImageDetails extends ImageInfo {
  config: {
    env: string[];
    user: string;
    workingDir: string;
    entrypoint: string[];
    cmd: string[];
    exposedPorts: string[];
  };
  layers: { digest: string; mediaType: string; size: number }[];
  platform: { os: string; architecture: string };
}

/** Progress of a pull, an import or a build. */
export interface ImageProgress {
  stage: 'resolve' | 'download' | 'read' | 'build' | 'finish';
  doneBytes: number;
  /** 0 when not known. */
  totalBytes: number;
  message?: string;
}
