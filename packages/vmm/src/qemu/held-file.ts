/**
 * Finds a file that a machine was made of, also when its name is gone: a template may be removed while its machines
 * run, and they still hold it open. Used when a machine is saved.
 */
import { access, readdir, readlink } from 'node:fs/promises';
import { VmmError } from '../driver.js';

/** A path by which the content of `path` can be read. Throws {@link VmmError} `save-failed` when nobody holds it. */
export async function findHeldFile(pid: number, path: string): Promise<string> {
  try {
    await access(path);
    return path;
  } catch {
    // The last two names say which: what is before them may lead through links.
    const held = await findDescriptor(pid, `/${path.split('/').slice(-2).join('/')} (deleted)`);
    if (held !== undefined) return held;
    throw new VmmError('save-failed', `the file ${path}, which the machine was made from, is gone`);
  }
}

async function findDescriptor(pid: number, ending: string): Promise<string | undefined> {
  const folder = `/proc/${pid}/fd`;
  for (const entry of await readdir(folder).catch(() => [])) {
    const path = `${folder}/${entry}`;
    if ((await readlink(path).catch(() => '')).endsWith(ending)) return path;
  }
  return undefined;
}
