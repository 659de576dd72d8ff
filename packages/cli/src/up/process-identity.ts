/** Which process a ready file means: pids are used again, the start time of a process is not. Used by `up` and `down`. */
import { readFileSync } from 'node:fs';

/** Content of `run/node.json` and `run/control-plane.json`, written by the daemons when they are ready. */
export interface ReadyFile {
  pid: number;
  /** Field 22 of /proc/PID/stat (proc(5)). */
  startTicks: number;
  version: string;
}

/** The file's content, or undefined when it is missing or half written. */
export function readReadyFile(file: string): ReadyFile | undefined {
  try {
    const parsed = JSON.parse(readFileSync(file, 'utf8')) as Partial<ReadyFile>;
    if (!Number.isInteger(parsed.pid) || !Number.isFinite(Number(parsed.startTicks))) return undefined;
    return {
      pid: parsed.pid as number,
      startTicks: Number(parsed.startTicks),
      version: String(parsed.version ?? ''),
    };
  } catch {
    return undefined;
  }
}

/** Start time of a process in clock ticks since boot; undefined when there is none, or only its remains. */
export function startTicksOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name, in parentheses, may hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : Number(fields[19]);
  } catch {
    return undefined;
  }
}

/** True while the process of the file lives. */
export function isAlive(ready: ReadyFile | undefined): ready is ReadyFile {
  return ready !== undefined && startTicksOf(ready.pid) === ready.startTicks;
}

/** Sends a signal if that very process lives. */
export function signalProcess(ready: ReadyFile, signal: NodeJS.Signals): void {
  if (!isAlive(ready)) return;
  try {
    process.kill(ready.pid, signal);
  } catch (error) {
    // It ended between the look and the signal.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** True once the process has ended; false when it has not by then. */
export async function hasEnded(ready: ReadyFile, withinMs: number): Promise<boolean> {
  const deadline = performance.now() + withinMs;
  while (isAlive(ready)) {
    if (performance.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return true;
}
