/**
 * What several instances on one host must agree on, as files in /run/sandlot: which subnet is whose, and who
 * needs IPv4 forwarding. /run is empty after a boot, as the things that these files speak of are. Used by
 * `subnet-claim.ts` and `forwarding.ts`.
 */
import { mkdir, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseProcessStat } from '@sandlot/vmm';
import { NetworkError } from '../contract.js';

/** Default folder of what instances share. */
export const defaultRunFolder = '/run/sandlot';

const lockDeadlineMs = 5_000;

/** A process as it can be told from a later one with the same number. */
export interface ProcessMark {
  pid: number;
  /** Field 22 of /proc/PID/stat. */
  startTime: string;
}

/** Marks this process. */
export async function markSelf(): Promise<ProcessMark> {
  return { pid: process.pid, startTime: (await readStartTime(process.pid)) ?? '' };
}

/** Whether the process that made the mark still runs. */
export async function isAlive(mark: ProcessMark): Promise<boolean> {
  return (await readStartTime(mark.pid)) === mark.startTime;
}

/** A number for the network namespace that we are in: forwarding is a setting of it. */
export async function readNetworkNamespaceId(): Promise<string> {
  const { ino } = await stat('/proc/self/ns/net');
  return String(ino);
}

/** Runs an action while no other instance runs one under the same lock file. A lock of a dead process is taken over. */
export async function withLock<T>(path: string, action: () => Promise<T>): Promise<T> {
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  const deadline = Date.now() + lockDeadlineMs;
  const own = JSON.stringify(await markSelf());
  for (;;) {
    try {
      const file = await open(path, 'wx', 0o644);
      await file.writeFile(own);
      await file.close();
      break;
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') throw cause;
      if (await isAbandoned(path)) {
        await unlink(path).catch(() => undefined);
        continue;
      }
      if (Date.now() > deadline) {
        throw new NetworkError(
          'setup-failed',
          `another instance holds ${path} for more than ${lockDeadlineMs} ms; try again`,
          { cause },
        );
      }
      await sleep(20);
    }
  }
  try {
    return await action();
  } finally {
    await unlink(path);
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  try {
    const { mtimeMs } = await stat(path);
    const text = await readFile(path, 'utf8');
    // Empty: its maker is between making and writing, or died there.
    if (text === '') return Date.now() - mtimeMs > 1_000;
    return !(await isAlive(JSON.parse(text) as ProcessMark));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw cause;
  }
}

async function readStartTime(pid: number): Promise<string | undefined> {
  try {
    return parseProcessStat(await readFile(`/proc/${pid}/stat`, 'latin1'))?.startTicks.toString();
  } catch {
    return undefined;
  }
}
