/**
 * One process at a time owns a store: two would sweep each other's work. The lock file names the process by pid and
 * start time, so that one left behind by a crash, or by a pid that is somebody else's now, does not count.
 * Called when the store is opened and closed.
 */
import { open, readFile, rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { ImageError } from '../store.js';

/** How long a predecessor may take to go. */
const WAIT_MS = 5000;

/** Takes the lock; answers how to give it back. Throws `in-use` if another process keeps it. */
export async function lockStore(root: string): Promise<() => Promise<void>> {
  const path = `${root}/lock`;
  const mine = await identityOf(process.pid);
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    try {
      const file = await open(path, 'wx', 0o644);
      await file.writeFile(mine ?? `${process.pid} 0`);
      await file.close();
      return () => rm(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const owner = await readFile(path, 'utf8').catch(() => '');
    const pid = Number(owner.split(' ')[0]);
    if (owner === '' ? await isOld(path) : (await identityOf(pid)) !== owner) {
      await rm(path, { force: true });
    } else if (Date.now() > deadline) {
      throw new ImageError(
        'in-use',
        `the image store ${root} is used by process ${pid}; stop it first, or use another data folder`,
      );
    } else {
      await sleep(50);
    }
  }
}

/** `pid starttime`, or undefined if there is no such process, or one that is dead and not reaped yet. */
async function identityOf(pid: number): Promise<string | undefined> {
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  // The name in parentheses may itself contain spaces; start time is the 20th field behind it.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields?.[19] === undefined || fields[0] === 'Z' ? undefined : `${pid} ${fields[19]}`;
}

/** An empty lock is one that is being written, or whose writer died in that instant. */
async function isOld(path: string): Promise<boolean> {
  await sleep(100);
  return (await readFile(path, 'utf8').catch(() => '')) === '';
}
