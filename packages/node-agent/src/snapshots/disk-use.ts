/** How much of the host's disk files take. Used where snapshots and machines' files are counted. */
import { lstat } from 'node:fs/promises';

/**
 * Bytes that a file takes on the disk now; none for one that is gone, or is no file.
 * @param seen files that are counted already: one with several names counts once, and is added
 */
export async function bytesOfFile(path: string, seen?: Set<string>): Promise<number> {
  const found = await lstat(path).catch(() => undefined);
  if (!found?.isFile()) return 0;
  const key = `${found.dev}:${found.ino}`;
  if (seen?.has(key)) return 0;
  seen?.add(key);
  // `blocks` counts 512 bytes each (stat(2)), whatever the file system's own size of them.
  return found.blocks * 512;
}
