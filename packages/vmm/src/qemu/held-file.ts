/**
 * Finds a file that a machine was made of, also when its name is gone: a template may be removed while its machines
 * run, and they still hold it open. Used when a machine is saved.
 */
import type { Stats } from 'node:fs';
import { readdir, readlink, stat } from 'node:fs/promises';
import { VmmError } from '../driver.js';

/**
 * A path by which the content of `path`, as the process opened it, can be read: by then another file may have the name. Throws
 * {@link VmmError} `save-failed` when the process does not hold it.
 */
export async function findHeldFile(pid: number, path: string): Promise<string> {
  const named = await look(path);
  // The last two names say which: what is before them may lead through links.
  const ending = `/${path.split('/').slice(-2).join('/')} (deleted)`;
  const folder = `/proc/${pid}/fd`;
  let held: string | undefined;
  for (const entry of await readdir(folder).catch(() => [])) {
    const descriptor = `${folder}/${entry}`;
    if (named && isSame(named, await look(descriptor))) return path;
    if ((await readlink(descriptor).catch(() => '')).endsWith(ending)) held = descriptor;
  }
  if (held !== undefined) return held;
  throw new VmmError('save-failed', `the file ${path}, which the machine was made from, is gone`);
}

function look(path: string): Promise<Stats | undefined> {
  return stat(path).catch(() => undefined);
}

function isSame(one: Stats, other: Stats | undefined): boolean {
  return other !== undefined && one.ino === other.ino && one.dev === other.dev;
}
