/**
 * The states of a sandbox as data: who owns it in each, what is true, what ends it, its deadline,
 * and which event leads where. `transition.ts` is the only code that moves a record between them;
 * `docs/state-machines.md` is written by hand after this table.
 */

/** State of a sandbox's record. */
export type SandboxState =
  | 'pending'
  | 'starting'
  | 'running'
  | 'snapshotting'
  | 'pausing'
  | 'paused'
  | 'resuming'
  | 'stopping'
  | 'stopped'
  | 'failed'
  | 'lost';

/** What can happen to a sandbox. Events in the past tense are facts from its node. */
export type SandboxEvent =
  /** The node reports that the machine is being made. */
  | 'started'
  /** The node reports that an exec has worked. */
  | 'ran'
  /** Somebody, or a deadline, wants it gone. */
  | 'stop'
  /** The node reports an end that is no fault, or that nothing of it is left. */
  | 'stopped'
  /** The node reports a faulty end, or the control plane gives up before a node has it. */
  | 'failed'
  /** Its node cannot be reached. */
  | 'lose'
  | 'snapshot'
  | 'snapshotted'
  /** It is to be paused, or its node pauses it. */
  | 'pause'
  /** The node reports that it is saved and has no machine. */
  | 'paused'
  /** It is to get a machine of a raised generation, or its node makes one. */
  | 'resume'
  /** It is to be put back to a checkpoint, by a machine of a raised generation. */
  | 'rollback'
  /** Its node has not heard of the resume, or has forgotten it: it is to be told again. */
  | 'unheard';

/** What holds in a state, and what ends it. */
export interface StateRow {
  owner: 'control plane' | 'node' | 'nobody';
  /** What is true while a sandbox is in it. */
  truth: string;
  /** What ends it. */
  endedBy: string;
  /** Longest time in it, in milliseconds; null: bounded otherwise, as `deadline` says. */
  deadlineMs: number | null;
  /** What happens at the deadline. */
  deadline: string;
  /** Event to next state; an event that is absent is refused. */
  next: Partial<Record<SandboxEvent, SandboxState>>;
}

const minute = 60_000;

/** Longest wait for room on a node. */
export const queueLimitMs = 10 * minute;

/** A node that is silent for this long has lost its sandboxes; a restart of its agent takes less. */
export const lostAfterMs = 10_000;

/** How long a lost sandbox still counts as running on the wire: two minutes with the silence before. */
export const lostGraceMs = 2 * minute - lostAfterMs;

/** How long after the end of its lifetime a sandbox is ended from here, should its node not have done it. */
export const overdueAfterMs = 2 * minute;

/** How long the record of an ended sandbox is kept. */
export const endedRetentionMs = 7 * 24 * 60 * minute;

/** The table. */
export const sandboxStates: Readonly<Record<SandboxState, StateRow>> = {
  pending: {
    owner: 'control plane',
    truth: 'Waits for room (no node yet), or its node has accepted it and fetches or builds the image.',
    endedBy: 'The node begins with the machine; a delete; the deadline.',
    deadlineMs: 60 * minute,
    deadline: 'Ten minutes without a node: failed as CAPACITY. With a node: stopping as START_FAILED.',
    next: { started: 'starting', ran: 'running', stop: 'stopping', stopped: 'stopped', failed: 'failed' },
  },
  starting: {
    owner: 'node',
    truth: 'The node makes the machine; no exec has worked yet.',
    endedBy: 'An exec worked; the start failed; a delete; the deadline.',
    deadlineMs: 20 * minute,
    deadline: 'Stopping as START_FAILED.',
    next: { ran: 'running', stop: 'stopping', stopped: 'stopped', failed: 'failed', lose: 'lost' },
  },
  running: {
    owner: 'node',
    truth: 'One machine of this generation lives, and an exec has worked in it.',
    endedBy: 'A delete; its lifetime or idle time; its machine ends; its node cannot be reached.',
    deadlineMs: null,
    deadline: 'timeout_minutes, which the node enforces; two minutes later the control plane does.',
    next: {
      stop: 'stopping',
      stopped: 'stopped',
      failed: 'failed',
      lose: 'lost',
      snapshot: 'snapshotting',
      pause: 'pausing',
      paused: 'paused',
      rollback: 'resuming',
    },
  },
  snapshotting: {
    owner: 'node',
    truth: 'Running; its memory and disk are being saved.',
    endedBy: 'The snapshot is complete or has failed.',
    deadlineMs: 10 * minute,
    deadline: 'Back to running by the node’s next report.',
    next: {
      snapshotted: 'running',
      ran: 'running',
      stop: 'stopping',
      stopped: 'stopped',
      failed: 'failed',
      lose: 'lost',
    },
  },
  pausing: {
    owner: 'node',
    truth: 'Its machine is being saved; its room stays booked.',
    endedBy: 'All is saved, and the machine gone; the save failed, and the machine runs on; a delete.',
    deadlineMs: 10 * minute,
    deadline: 'Back to running by the node’s next report.',
    next: {
      paused: 'paused',
      ran: 'running',
      stop: 'stopping',
      stopped: 'stopped',
      failed: 'failed',
      lose: 'lost',
    },
  },
  paused: {
    owner: 'control plane',
    truth:
      'No machine and none of its room but the disk; its node keeps its memory and disk, also over a restart of the host.',
    endedBy: 'A resume, by a user or because a request waits for it; a delete; its lifetime.',
    deadlineMs: null,
    deadline: 'timeout_minutes.',
    next: {
      resume: 'resuming',
      rollback: 'resuming',
      stop: 'stopping',
      stopped: 'stopped',
      failed: 'failed',
    },
  },
  resuming: {
    owner: 'node',
    truth:
      'Its room is booked; a machine of a raised generation is being made from what was saved, by a pause or by a checkpoint that it is put back to.',
    endedBy:
      'The guest has confirmed the time; the resume failed, and nothing has run: paused again; a rollback failed: failed; a delete.',
    deadlineMs: 20 * minute,
    deadline: 'Stopping as START_FAILED.',
    next: {
      ran: 'running',
      paused: 'paused',
      unheard: 'resuming',
      stop: 'stopping',
      stopped: 'stopped',
      failed: 'failed',
      lose: 'lost',
    },
  },
  stopping: {
    owner: 'node',
    truth: 'It is to go. The node may still hold a machine, disk or network of it; its room stays booked.',
    endedBy: 'The node says that nothing is left.',
    deadlineMs: null,
    deadline: 'The delete is repeated until the node has confirmed it.',
    next: { stopped: 'stopped', failed: 'failed' },
  },
  stopped: {
    owner: 'nobody',
    truth: 'Ended as asked for: deleted, timed out, or shut down from inside. Nothing is left on a node.',
    endedBy: 'Retention.',
    deadlineMs: endedRetentionMs,
    deadline: 'The record is removed.',
    next: {},
  },
  failed: {
    owner: 'nobody',
    truth: 'Ended by a fault; reason and message say which. Nothing is left on a node.',
    endedBy: 'Retention.',
    deadlineMs: endedRetentionMs,
    deadline: 'The record is removed.',
    next: {},
  },
  lost: {
    owner: 'node',
    truth: 'Its node cannot be reached; the machine may well live. Wire RUNNING for two minutes, then ERROR.',
    endedBy: 'The node reports again; a delete; the deadline.',
    deadlineMs: 24 * 60 * minute,
    deadline: 'Stopping as NODE_LOST: should its node come back, it removes the machine.',
    next: {
      started: 'starting',
      ran: 'running',
      pause: 'pausing',
      paused: 'paused',
      unheard: 'resuming',
      stop: 'stopping',
      stopped: 'stopped',
      failed: 'failed',
    },
  },
};

/** States of a sandbox that has ended: no event leaves them. */
export function isEnded(state: SandboxState): boolean {
  return state === 'stopped' || state === 'failed';
}
