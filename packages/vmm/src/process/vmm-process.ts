/**
 * Starts the process of a machine so that it outlives us: own session, nothing shared with our
 * standard streams, first in line when the host is short of memory. Called by both drivers.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { VmmError } from '../driver.js';
import { identifyProcess, type ProcessIdentity } from './process-identity.js';

/** How a child of ours ended. */
export interface ProcessExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** A started process. */
export interface VmmProcess {
  identity: ProcessIdentity;
  /** Resolves when it is gone and reaped. */
  exited: Promise<ProcessExit>;
  /** Lets our own process end while this one runs. */
  release(): void;
}

/** Options of {@link startVmmProcess}. */
export interface StartOptions {
  /** Its standard error goes here, its standard output nowhere. */
  stderrPath: string;
  cwd: string;
  environment: NodeJS.ProcessEnv;
  /** Moved into this cgroup at once. */
  cgroupPath?: string | undefined;
}

/**
 * The host's OOM killer takes a machine before our daemons (which keep 0): a machine is one
 * sandbox, a daemon is all of them.
 */
export const machineOomScoreAdj = 500;

/** Starts `argv` detached. Throws {@link VmmError} `vmm-missing` or `start-failed`. */
export async function startVmmProcess(argv: readonly string[], options: StartOptions): Promise<VmmProcess> {
  const [program, ...rest] = argv;
  if (program === undefined) throw new Error('empty argv');
  const stderr = openSync(options.stderrPath, 'w', 0o600);
  let child: ChildProcess;
  try {
    child = spawn(program, rest, {
      detached: true,
      stdio: ['ignore', 'ignore', stderr],
      cwd: options.cwd,
      env: options.environment,
    });
  } finally {
    closeSync(stderr);
  }
  const exited = new Promise<ProcessExit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => reject(describeSpawnError(program, error)));
  });
  child.on('error', () => {
    // After the start only a failed kill() is reported here, and we do not use child.kill().
  });
  const pid = child.pid!;
  // Gone already: its exit is what the caller sees next.
  const identity = identifyProcess(pid) ?? { pid, startTicks: -1 };
  writeIfAlive(`/proc/${pid}/oom_score_adj`, String(machineOomScoreAdj));
  if (options.cgroupPath !== undefined) {
    try {
      writeFileSync(join(options.cgroupPath, 'cgroup.procs'), String(pid));
    } catch (error) {
      if (identity.startTicks !== -1) process.kill(pid, 'SIGKILL');
      await exited;
      throw new VmmError(
        'start-failed',
        `the machine's process could not be moved into the cgroup ${options.cgroupPath}; does it exist, and may we write there?`,
        { cause: error },
      );
    }
  }
  return { identity, exited, release: () => child.unref() };
}

function describeSpawnError(program: string, error: Error): VmmError {
  const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
  return new VmmError(
    missing ? 'vmm-missing' : 'start-failed',
    missing
      ? `'${program}' is not installed or not in PATH; install the package that has it`
      : `'${program}' could not be started: ${error.message}`,
    { cause: error },
  );
}

function writeIfAlive(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch {
    // The process has ended meanwhile (its exit is reported), or the host forbids raising the score,
    // which costs nothing but the order of victims.
  }
}

/** The last `maxBytes` of a file as text; empty if it cannot be read. */
export async function readTail(path: string, maxBytes: number): Promise<string> {
  try {
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      const length = Math.min(size, maxBytes);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, size - length);
      return buffer.toString('utf8', 0, bytesRead).trim();
    } finally {
      await file.close();
    }
  } catch {
    return '';
  }
}
