/**
 * Which process we mean: a pid alone is reused by the kernel, a pid with its start time is not. Used
 * by both drivers to find machines again after our own restart and to kill nothing else.
 */
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/** A process, safe against reuse of its pid. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot at its start. */
  startTicks: number;
}

/** What we read of `/proc/PID/stat`. */
export interface ProcessStat {
  pid: number;
  command: string;
  /** One letter, see proc(5). */
  state: string;
  parentPid: number;
  startTicks: number;
}

/**
 * Parses a line of `/proc/PID/stat`. The command is in parentheses and may itself hold spaces and
 * parentheses, so the fields are counted from the last one. Undefined if it is no such line.
 */
export function parseProcessStat(text: string): ProcessStat | undefined {
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  if (open < 1 || close < open) return undefined;
  const pid = Number(text.slice(0, open).trim());
  const fields = text
    .slice(close + 1)
    .trim()
    .split(' ');
  const state = fields[0];
  // Fields 4 and 22 of proc(5); the state is field 3.
  const parentPid = Number(fields[1]);
  const startTicks = Number(fields[19]);
  if (!Number.isInteger(pid) || !state || fields[19] === undefined || !Number.isInteger(startTicks)) {
    return undefined;
  }
  return { pid, command: text.slice(open + 1, close), state, parentPid, startTicks };
}

/** The process that has this pid now; undefined if there is none, or only its corpse. */
export function identifyProcess(pid: number): ProcessIdentity | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  const stat = parseProcessStat(text);
  if (!stat || stat.state === 'Z' || stat.state === 'X') return undefined;
  return { pid, startTicks: stat.startTicks };
}

/** True while exactly this process runs. */
export function isRunning(identity: ProcessIdentity): boolean {
  return identifyProcess(identity.pid)?.startTicks === identity.startTicks;
}

/** Sends SIGKILL to this process if it still runs. */
export function killProcess(identity: ProcessIdentity): void {
  if (!isRunning(identity)) return;
  try {
    process.kill(identity.pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Resolves to true when the process is gone, to false when `timeoutMs` has passed. */
export async function waitUntilGone(identity: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  for (let pauseMs = 1; isRunning(identity); pauseMs = Math.min(pauseMs * 2, 50)) {
    if (performance.now() > deadline) return false;
    await sleep(pauseMs);
  }
  return true;
}

/** This boot of the host: results that a reboot makes void are kept under it. */
export async function readBootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
}
