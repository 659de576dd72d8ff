/**
 * Runs the programs that touch untrusted bytes (gzip, zstd, mke2fs, debugfs): argv arrays, a fixed small
 * environment, as another user where asked, never holding a file by name but by inherited descriptor, and always
 * ended: by exit, by the abort signal, or with the caller. Called by layer decompression and the rootfs build.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { ImageError } from '../store.js';

/** The user that children run as; undefined means our own. */
export interface ChildUser {
  uid: number;
  gid: number;
}

/** What to run. */
export interface ChildSpec {
  argv: [string, ...string[]];
  user: ChildUser | undefined;
  /** As in `child_process`: index is the descriptor in the child. */
  stdio: ('pipe' | 'ignore' | number)[];
  env?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** A running child. */
export interface RunningChild {
  process: ChildProcess;
  /** Settles when it has exited and its pipes are closed. Rejects only if it could not be started. */
  exit: Promise<{ code: number | null; signal: string | null; stderr: string }>;
  /** Ends it at once; harmless when it has exited. */
  kill(): void;
}

/** Distributions keep mke2fs and debugfs where a service's PATH does not always reach. */
const SEARCH_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const MAX_STDERR = 16_384;

/** Starts a child. */
export function startChild(spec: ChildSpec): RunningChild {
  const [command, ...args] = spec.argv;
  const child = spawn(command, args, {
    stdio: spec.stdio,
    cwd: '/',
    env: { PATH: SEARCH_PATH, LC_ALL: 'C', TZ: 'UTC', ...spec.env },
    ...(spec.user ? { uid: spec.user.uid, gid: spec.user.gid } : {}),
  });
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    // The end of a long error output says most, and none of it may grow without bound.
    stderr = (stderr + text).slice(-MAX_STDERR);
  });
  const kill = () => void child.kill('SIGKILL');
  spec.signal?.addEventListener('abort', kill, { once: true });
  if (spec.signal?.aborted) kill();
  const exit = new Promise<{ code: number | null; signal: string | null; stderr: string }>(
    (resolve, reject) => {
      child.once('error', (cause) => {
        spec.signal?.removeEventListener('abort', kill);
        if (child.pid === undefined) reject(notStarted(command, cause));
      });
      child.once('close', (code, signal) => {
        spec.signal?.removeEventListener('abort', kill);
        resolve({ code, signal, stderr: stderr.trim() });
      });
    },
  );
  // Whoever awaits it sees the rejection; nobody awaiting yet must not end the process.
  exit.catch(() => undefined);
  return { process: child, exit, kill };
}

function notStarted(command: string, cause: Error): ImageError {
  return new ImageError(
    'build-failed',
    `${command} could not be started: ${cause.message}; install it (packages gzip, zstd, e2fsprogs)`,
    { cause },
  );
}
