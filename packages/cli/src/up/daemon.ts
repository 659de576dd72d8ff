/** Starts one daemon as a process of its own, waits until it is healthy, and says why when it is not. Used by `up` and `down`. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, fstatSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { CliError } from '../cli-error.js';
import { isAlive, type ReadyFile, readReadyFile } from './process-identity.js';
import type { UserIds } from './service-user.js';
import { isHealthy } from './socket-request.js';

/** Which daemon, how it is started and how it is asked. */
export interface DaemonSpec {
  role: 'node agent' | 'control plane';
  main: string;
  args: string[];
  /** Runs as this user; absent: as ours. */
  user?: UserIds | undefined;
  logFile: string;
  readyFile: string;
  health: { socketPath: string } | { url: string };
  /** Longest time until it is healthy. */
  startTimeoutMs: number;
}

const pollMs = 50;
/**
 * Memory of this size and more goes back to the system when it is freed: buffers of streams do. Otherwise a daemon keeps for ever
 * what it needed once, and every process that it starts takes longer (docs/rfd/0002).
 */
const mappedFromBytes = 32 * 1024;

/** True while its process lives and answers. */
export async function isRunning(spec: DaemonSpec): Promise<boolean> {
  return isAlive(readReadyFile(spec.readyFile)) && (await isHealthy(spec.health));
}

/** Starts it; resolves when it is healthy. It has a session of its own: our Ctrl-C and our end do not reach it. */
export async function startDaemon(spec: DaemonSpec): Promise<ReadyFile> {
  // The file stays until the new process writes its own: without one, whoever supervises would take
  // a start that failed for an end on purpose. It names a dead process until then.
  const log = openLog(spec.logFile);
  // Of a start that fails, only its own lines are shown.
  const logFrom = fstatSync(log).size;
  let child: ChildProcess;
  try {
    child = spawn(process.execPath, ['--enable-source-maps', spec.main, ...spec.args], {
      cwd: '/',
      detached: true,
      stdio: ['ignore', log, log],
      env: daemonEnvironment(),
      ...(spec.user ? { uid: spec.user.uid, gid: spec.user.gid } : {}),
    });
  } finally {
    closeSync(log);
  }
  child.unref();
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ? `ended by ${signal}` : `exit code ${code}`));
  });
  let end: string | undefined;
  void ended.then((text) => {
    end = text;
  });
  const deadline = performance.now() + spec.startTimeoutMs;
  for (;;) {
    if (end !== undefined) throw notStarted(spec, `it has ended: ${end}`, logFrom);
    const ready = readReadyFile(spec.readyFile);
    if (ready?.pid === child.pid && isAlive(ready) && (await isHealthy(spec.health))) return ready;
    if (performance.now() > deadline) {
      child.kill('SIGTERM');
      throw notStarted(
        spec,
        `it was not ready within ${spec.startTimeoutMs / 1000} s, and was ended`,
        logFrom,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

/** The last lines of a log, from a position on. */
export function lastLines(file: string, count: number, from = 0): string {
  try {
    const text = readFileSync(file).subarray(from).toString('utf8');
    return text.trimEnd().split('\n').slice(-count).join('\n');
  } catch {
    return '';
  }
}

function notStarted(spec: DaemonSpec, why: string, logFrom: number): CliError {
  const lines = lastLines(spec.logFile, 15, logFrom);
  const log = lines === '' ? '' : `\n  its last lines:\n${lines.replace(/^/gm, '    ')}`;
  return new CliError(`the ${spec.role} did not start: ${why}${log}`, {
    hint: `All of it is in ${spec.logFile}; \`sandlot doctor\` checks this host.`,
  });
}

function openLog(file: string): number {
  mkdirSync(path.dirname(file), { recursive: true, mode: 0o755 });
  // The node agent keeps it small; it relies on every writer appending.
  return openSync(file, 'a', 0o640);
}

// What belongs to the caller's shell (keys, tokens, Node's own switches) is no business of a daemon.
function daemonEnvironment(): Record<string, string> {
  const kept = [
    'PATH',
    'HOME',
    'LANG',
    'LC_ALL',
    'TZ',
    'TMPDIR',
    'SSL_CERT_FILE',
    'SSL_CERT_DIR',
    'NODE_EXTRA_CA_CERTS',
  ];
  const proxies = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy'];
  const chosen: Record<string, string> = {};
  for (const name of [...kept, ...proxies]) {
    const value = process.env[name];
    if (value !== undefined) chosen[name] = value;
  }
  chosen['MALLOC_MMAP_THRESHOLD_'] = String(mappedFromBytes);
  chosen['PATH'] ??= '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
  if (!chosen['PATH'].split(':').includes('/usr/sbin')) chosen['PATH'] += ':/usr/sbin:/sbin';
  return chosen;
}
