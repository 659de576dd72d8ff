/**
 * The record of a sandbox as the domain sees it: what the user asked for, what was decided, and
 * the facts that its node has reported. The store reads and writes it as a whole.
 */
import type {
  EgressPolicy,
  EndReason,
  NodeCheckpointUse,
  StartCommand,
  StartStage,
  View,
} from '@sandlot/protocol';
import type { SandboxState } from './states.js';

/** What the user asked for, as asked; echoed in every answer. */
export interface SandboxRequest {
  name: string;
  image: string;
  startCommand: string | StartCommand | null;
  entrypoint: boolean;
  /** Absent in records of older versions: no. */
  init?: boolean;
  cpuCores: number;
  memoryGb: number;
  diskGb: number;
  vm: boolean;
  timeoutMinutes: number;
  idleTimeoutMinutes: number | null;
  /** Absent in records of older versions: `end`. */
  idleAction?: 'end' | 'pause';
  environmentVars: Record<string, string>;
  /** Names only: the values are kept apart, encrypted. */
  secretNames: string[];
  advancedConfigs: Record<string, unknown> | null;
  region: string | null;
  /** Default view; absent: none. */
  view?: View;
}

/** What a machine gets, and what is booked for it on a node. */
export interface Shape {
  vcpus: number;
  memoryMiB: number;
  diskGiB: number;
  /** Fraction of a CPU when the request was not whole, else 0. */
  cpuLimit: number;
}

/** The record of a sandbox. Times are milliseconds since 1970. */
export interface SandboxRecord {
  id: string;
  ownerId: string;
  teamId: string | null;
  labels: string[];
  request: SandboxRequest;
  shape: Shape;
  state: SandboxState;
  /** Raised whenever it gets a new machine. */
  generation: number;
  /** Where its room is booked; null while it waits for room. */
  nodeId: string | null;
  /** When the node accepted this generation; null: it may not know of it. */
  acceptedAt: number | null;
  createdAt: number;
  updatedAt: number;
  /** When it entered its state. */
  stateSince: number;
  placedAt: number | null;
  startedAt: number | null;
  endedAt: number | null;
  /** A user has asked for its end: from then on a delete is 404. */
  deletedAt: number | null;
  /** End of its lifetime; null: none, or not placed yet. */
  deadlineAt: number | null;
  reason: EndReason | null;
  message: string | null;
  stage: StartStage | null;
  imageBuildId: string | null;
  imageDigest: string | null;
  timings: Partial<Record<StartStage, number>>;
  exitCode: number | null;
  logTail: string | null;
  /** The sandbox that it is a copy of; absent: it began from its image, or a checkpoint. */
  forkOf?: string;
  /** The checkpoint that it begins with, and the node that has it. */
  beginsWith?: NodeCheckpointUse & { nodeId: string };
  /** The checkpoint that it began with, or was last put back to. */
  checkpointId?: string;
  /** The newest checkpoint in its past: what the next one comes after. */
  tip?: { id: string; depth: number };
  /** It is being put back there; `from` is what it was before, and `was` what these fields said. */
  rollback?:
    | (NodeCheckpointUse & {
        from: 'running' | 'paused';
        was: Pick<SandboxRecord, 'checkpointId' | 'tip'>;
      })
    | null;
  egress: EgressPolicy;
  /** Generation of the policy that is in force. */
  egressApplied: number;
  warnings: string[];
}

/** What holds for every new record: it waits for room, and nothing has been done about it. `now` in Unix milliseconds. */
export function nothingYet(now: number) {
  return {
    state: 'pending' as const,
    generation: 1,
    nodeId: null,
    acceptedAt: null,
    createdAt: now,
    updatedAt: now,
    stateSince: now,
    placedAt: null,
    startedAt: null,
    endedAt: null,
    deletedAt: null,
    deadlineAt: null,
    reason: null,
    message: null,
    stage: 'queue' as const,
    imageBuildId: null,
    timings: {},
    logTail: null,
    egressApplied: 0,
    warnings: [],
  };
}
