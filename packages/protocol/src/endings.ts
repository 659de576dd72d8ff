/**
 * How a sandbox can end, and how each end looks on the wire. One row for each {@link EndReason};
 * read by the control plane (status, error-context) and by `docs/errors.md`.
 */
import type { EndReason } from './node-api.js';
import type { SandboxStatus } from './sandbox.js';

/** One way to end. */
export interface EndingRow {
  /** Wire status of a sandbox that has ended so. */
  status: Extract<SandboxStatus, 'TERMINATED' | 'TIMEOUT' | 'ERROR'>;
  /** `errorType` on the wire; null: no error. Prime's SDK has classes for OOM_KILLED, TIMEOUT and IMAGE_PULL_FAILED. */
  errorType: string | null;
  /** Text for the user when the node sends none. */
  message: string;
}

/** Every way to end. */
export const endings: Readonly<Record<EndReason, EndingRow>> = {
  DELETED: { status: 'TERMINATED', errorType: null, message: 'It was deleted.' },
  TIMEOUT: {
    status: 'TIMEOUT',
    errorType: 'TIMEOUT',
    message: 'Its lifetime is over. Give a longer timeout_minutes, or -1 for none.',
  },
  IDLE_TIMEOUT: {
    status: 'TIMEOUT',
    errorType: 'TIMEOUT',
    message: 'It was idle for longer than idle_timeout_minutes. Give a longer one, or none.',
  },
  IMAGE_PULL_FAILED: {
    status: 'ERROR',
    errorType: 'IMAGE_PULL_FAILED',
    message: 'Its image could not be pulled. Check the name, the registry and the network of the node.',
  },
  IMAGE_INVALID: {
    status: 'ERROR',
    errorType: 'IMAGE_INVALID',
    message: 'Its image was fetched but is not usable. Check its platform and that it is intact.',
  },
  START_FAILED: {
    status: 'ERROR',
    errorType: 'START_FAILED',
    message: 'Its machine could not be started. The node agent’s log has the cause under its id.',
  },
  VIEW_INVALID: {
    status: 'ERROR',
    errorType: 'VIEW_INVALID',
    message: 'Its default view could not be made. Its paths must exist in the image.',
  },
  OOM_KILLED: {
    status: 'ERROR',
    errorType: 'OOM_KILLED',
    message: 'It ran out of its own memory and its kernel could go on no more. Give it a larger memory_gb.',
  },
  HOST_OUT_OF_MEMORY: {
    status: 'ERROR',
    errorType: 'HOST_OUT_OF_MEMORY',
    message: 'The host ran out of memory and ended it. Run fewer sandboxes, or lower --memory-overcommit.',
  },
  MACHINE_ENDED: {
    status: 'ERROR',
    errorType: 'MACHINE_ENDED',
    message: 'Its machine process ended unexpectedly. The node agent’s log has the cause under its id.',
  },
  GUEST_PANIC: {
    status: 'ERROR',
    errorType: 'GUEST_PANIC',
    message: 'Its kernel stopped with a panic. The end of its console is in the node agent’s log.',
  },
  GUEST_SHUTDOWN: {
    status: 'TERMINATED',
    errorType: null,
    message: 'It was shut down from inside.',
  },
  INIT_NOT_FOUND: {
    status: 'ERROR',
    errorType: 'INIT_NOT_FOUND',
    message:
      'It was to be run by its image’s own init, and the image has none. Use an image with /sbin/init (Debian: systemd-sysv), or create it without init.',
  },
  REBOOT_LOOP: {
    status: 'ERROR',
    errorType: 'REBOOT_LOOP',
    message: 'It rebooted more than ten times in five minutes. Look for what reboots it at its start.',
  },
  AGENT_KILLED: {
    status: 'ERROR',
    errorType: 'AGENT_KILLED',
    message:
      'Its guest agent was killed from inside (kill -9 -1 by root does that beside an init), so no command can reach it any more.',
  },
  CAPACITY: {
    status: 'ERROR',
    errorType: 'CAPACITY',
    message: 'It waited ten minutes for room on a node and got none. Delete others, or ask for less.',
  },
  CHECKPOINT_INVALID: {
    status: 'ERROR',
    errorType: 'CHECKPOINT_INVALID',
    message:
      'The checkpoint that it was to begin with is missing, damaged, or cannot be restored here. Restore its disk alone, or use another one.',
  },
  NODE_LOST: {
    status: 'ERROR',
    errorType: 'NODE_LOST',
    message: 'Its node could not be reached for too long.',
  },
};
