/** What must be there after a loss of power: used by saves and merges here, by records and checksums in the node agent. */
import { open } from 'node:fs/promises';

/** Resolves when a file's content, or what was made and renamed in a folder, has reached the host's disk. */
export async function syncToDisk(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
