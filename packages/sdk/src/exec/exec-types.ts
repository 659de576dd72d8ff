/** What an exec takes and gives. */
import type { View } from '../views.js';

/** Names of signals that can be sent. */
export type SignalName = 'SIGHUP' | 'SIGINT' | 'SIGQUIT' | 'SIGKILL' | 'SIGUSR1' | 'SIGUSR2' | 'SIGTERM';

/** Options of {@link Sandbox.exec}. */
export interface ExecOptions {
  /** Added to the sandbox's environment. */
  env?: Record<string, string> | undefined;
  /** Working directory; the image's WORKDIR otherwise. */
  cwd?: string | undefined;
  /** `name`, `uid`, `name:group` or `uid:gid`; the image's USER otherwise. */
  user?: string | undefined;
  /**
   * Standard input. Absent: closed. `true`: open, fed by `write` and `closeStdin`. Otherwise this
   * content, then its end.
   */
  stdin?: true | string | Uint8Array | AsyncIterable<Uint8Array> | undefined;
  /** Run on a terminal of this size. stdout and stderr are then one stream, `pty`. */
  pty?: { cols: number; rows: number } | undefined;
  /** What it sees of the machine, in place of the default view of the sandbox; `{ strength: 'none' }` is outside of any. */
  view?: View | undefined;
  /** The whole process tree is ended after this; the result then says `timedOut`. */
  timeoutMs?: number | undefined;
  /**
   * Cancels: the stream closes, and with it the command and all its children end. A command with
   * `session` runs on.
   */
  signal?: AbortSignal | undefined;
  /**
   * `true` or an id of your own: the command outlives its stream, which is attached again by itself
   * after a lost connection, without a lost or doubled byte. A start with a known id attaches instead of starting.
   */
  session?: true | string | undefined;
}

/** How a command ended. A non-zero exit code is a result, not an error. */
export interface ExecResult {
  /** Exit status; 128 + n after signal n, 127 not found, 126 cannot be run, 124 timed out. */
  exitCode: number;
  /** Name of the signal that ended it. */
  signal: string | undefined;
  /** The guest's kernel killed it for want of memory. */
  oomKilled: boolean;
  /** `timeoutMs` passed. */
  timedOut: boolean;
  /** Output that did not come here because it was not kept long enough while nobody was attached, bytes. */
  droppedBytes: number;
  /** Why it could not be run. */
  error: string | undefined;
}

/** One piece of output. */
export interface OutputEvent {
  stream: 'stdout' | 'stderr' | 'pty';
  data: Uint8Array;
}

/** Result of {@link Sandbox.run}. */
export interface RunResult extends ExecResult {
  /** Standard output, decoded as UTF-8 (of a terminal: everything). */
  stdout: string;
  stderr: string;
  stdoutBytes: Uint8Array;
  stderrBytes: Uint8Array;
  /** There was more output than `maxOutputBytes`; only its beginning is here. */
  truncated: boolean;
}

/** Options of {@link Sandbox.run}. */
export interface RunOptions extends ExecOptions {
  /** Bytes kept of each of stdout and stderr; 16 MiB otherwise. */
  maxOutputBytes?: number | undefined;
}
