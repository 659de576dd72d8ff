/** Sandboxes as the API shows them and as a create asks for them. */
import type { Sandbox as WireSandbox } from '@sandlot/protocol';
import type { View } from '../views.js';

/** State of a sandbox. */
export type SandboxStatus = WireSandbox['status'];

/** States that never change again. */
export const endedStatuses: readonly SandboxStatus[] = ['ERROR', 'TERMINATED', 'TIMEOUT'];

/** One sandbox, as `GET /sandbox/{id}` answers. Times are ISO 8601, UTC. */
export type SandboxInfo = Omit<WireSandbox, 'gatewayAuth'>;

/** What a new sandbox is to be. */
export interface CreateSandbox {
  /** Image reference. It, or a checkpoint. */
  image?: string | undefined;
  /** Id of a checkpoint to begin with: the disk is its, and `diskGiB` is absent. What is not said is as its sandbox had it. */
  checkpoint?: string | undefined;
  /** Go on with the memory of the checkpoint, processes and all; else the machine boots with its disk. */
  restoreMemory?: boolean | undefined;
  name?: string | undefined;
  /** CPUs, 0.1 to 16. */
  cpu?: number | undefined;
  /** GiB. */
  memoryGiB?: number | undefined;
  /** GiB. */
  diskGiB?: number | undefined;
  env?: Record<string, string> | undefined;
  secrets?: Record<string, string> | undefined;
  labels?: readonly string[] | undefined;
  /** Lifetime; a negative number is unlimited. */
  timeoutMinutes?: number | undefined;
  /** Ends it after this long without use. */
  idleTimeoutMinutes?: number | undefined;
  /** What becomes of it then: `pause` keeps it, processes and all, for its next use (after 15 minutes where no time is given). Absent: it ends. */
  idleAction?: 'end' | 'pause' | undefined;
  /** argv, a line for `/bin/sh -c`, or the image's ENTRYPOINT and CMD. Absent: nothing is started. */
  startCommand?: readonly string[] | string | { entrypoint: true } | undefined;
  /** The image's own init (systemd, say) becomes process 1; a start command that is an init means the same. */
  init?: boolean | undefined;
  teamId?: string | undefined;
  /** Names and addresses that may be reached; not together with `networkDenylist`. */
  networkAllowlist?: readonly string[] | undefined;
  networkDenylist?: readonly string[] | undefined;
  /** The view of every command that names none; the start command acts outside of it. Absent: none. */
  view?: View | undefined;
  /** Two creates with the same key make one sandbox; made up when absent. */
  idempotencyKey?: string | undefined;
}

/** How a sandbox is put back. */
export interface RollbackOptions {
  /** Absent: with memory if the checkpoint has some. false: its disk alone, and the machine boots. */
  memory?: boolean | undefined;
}

/** What the copies of a fork are to be; what is not said is as their source has it. */
export interface ForkOptions {
  /** How many, 1 to 64; one when absent. */
  count?: number | undefined;
  name?: string | undefined;
  labels?: readonly string[] | undefined;
  /** Over the source's, for commands that are started from now on. */
  env?: Record<string, string> | undefined;
  timeoutMinutes?: number | undefined;
  /** Keep the copies that run when others do not. */
  allowPartial?: boolean | undefined;
  /** Two forks with the same key make one; made up when absent. */
  idempotencyKey?: string | undefined;
}

/** What has become of a fork; `T` is a handle or a record. */
export interface ForkResult<T> {
  /** They run. */
  sandboxes: T[];
  /** Copies that do not; empty without `allowPartial`. */
  errors: { index: number; code: string; message: string }[];
}

/** Filters of a list. */
export interface ListSandboxes {
  /** Must have all of them. */
  labels?: readonly string[] | undefined;
  status?: SandboxStatus | undefined;
  /** Ids that begin so. */
  idPrefix?: string | undefined;
  /** Only those that have not ended. */
  activeOnly?: boolean | undefined;
  teamId?: string | undefined;
  userId?: string | undefined;
  /** Sandboxes per request, 1 to 1,000. */
  pageSize?: number | undefined;
}

/** Short state of one sandbox. */
export interface SandboxState {
  id: string;
  status: SandboxStatus;
  errorType: string | undefined;
  errorMessage: string | undefined;
  pendingImageBuildId: string | undefined;
}

/** Answer of a bulk delete. */
export interface DeleteResult {
  succeeded: string[];
  failed: { id: string; error: string }[];
}
