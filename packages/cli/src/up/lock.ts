/** One `up` or `down` at a time for a data folder. The lock dies with its holder: a file that names a dead process counts for nothing. */
import { randomUUID } from 'node:crypto';
import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { CliError } from '../cli-error.js';
import { isAlive, readReadyFile, startTicksOf } from './process-identity.js';

/** Longest wait for somebody else: a start builds nothing, but a stop ends every machine. */
const waitMs = 300_000;
const pollMs = 100;

/** Runs `work` while holding the lock of the folder. `onWait` is told once who holds it. */
export async function withLock<T>(
  folder: string,
  onWait: (pid: number) => void,
  work: () => Promise<T>,
): Promise<T> {
  const file = path.join(folder, 'lock');
  const own = path.join(folder, `lock.${randomUUID()}`);
  writeFileSync(
    own,
    JSON.stringify({ pid: process.pid, startTicks: startTicksOf(process.pid), version: '' }),
  );
  try {
    await acquire(file, own, onWait);
    try {
      return await work();
    } finally {
      if (readReadyFile(file)?.pid === process.pid) rmSync(file, { force: true });
    }
  } finally {
    rmSync(own, { force: true });
  }
}

async function acquire(file: string, own: string, onWait: (pid: number) => void): Promise<void> {
  const deadline = performance.now() + waitMs;
  let told = false;
  for (;;) {
    try {
      // A link is made whole or not at all, and only one of many at once succeeds.
      linkSync(own, file);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const holder = readReadyFile(file);
    if (!isAlive(holder)) await removeStale(file);
    else if (performance.now() > deadline) {
      throw new CliError(
        `another sandlot (pid ${holder.pid}) has been starting or stopping this server for minutes`,
        {
          hint: `See what it does; if it hangs, end it: kill ${holder.pid}`,
        },
      );
    } else {
      if (!told) onWait(holder.pid);
      told = true;
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }
}

/** Two may see the same dead holder; the pause lets the slower one see the new lock of the quicker one. */
async function removeStale(file: string): Promise<void> {
  const seen = readText(file);
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 50));
  if (seen !== undefined && readText(file) === seen) rmSync(file, { force: true });
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
