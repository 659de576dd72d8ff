/**
 * The files of a snapshot: memory, device state, module disk, the disk that was frozen with them if the machine went on, and
 * `snapshot.json`, whose name appears last and makes it complete. Used by the drivers to write, and by the node agent to find
 * snapshots from before its restart.
 */
import { readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Snapshot } from './driver.js';

/** Paths inside a snapshot's folder. */
export function snapshotPaths(folder: string): {
  memory: string;
  state: string;
  modules: string;
  disk: string;
  description: string;
} {
  return {
    memory: join(folder, 'memory'),
    state: join(folder, 'state'),
    modules: join(folder, 'modules.ext4'),
    disk: join(folder, 'disk.qcow2'),
    description: join(folder, 'snapshot.json'),
  };
}

interface Description extends Omit<Snapshot, 'folder'> {
  /** Size in bytes of each file beside it: one cut short is no part of a snapshot. */
  files: Record<string, number>;
}

/** Writes the description under a passing name: what can fail for want of room has then not to be done any more. */
export async function prepareDescription(snapshot: Snapshot, files: readonly string[]): Promise<void> {
  const sizes: Record<string, number> = {};
  for (const name of files) sizes[name] = (await stat(join(snapshot.folder, name))).size;
  const { folder, shape, networkKind, snapshotFingerprint, disk } = snapshot;
  const description: Description = { shape, networkKind, snapshotFingerprint, disk, files: sizes };
  await writeFile(`${snapshotPaths(folder).description}.tmp`, `${JSON.stringify(description, null, 2)}\n`, {
    mode: 0o400,
  });
}

/** Marks the snapshot complete. */
export async function completeSnapshot(folder: string): Promise<void> {
  const { description } = snapshotPaths(folder);
  await rename(`${description}.tmp`, description);
}

/** The complete snapshot in this folder; undefined if there is none, or a file of it is missing or cut short. */
export async function readSnapshot(folder: string): Promise<Snapshot | undefined> {
  try {
    const text = await readFile(snapshotPaths(folder).description, 'utf8');
    const { files, ...rest } = JSON.parse(text) as Description;
    for (const [name, size] of Object.entries(files)) {
      if ((await stat(join(folder, name))).size !== size) return undefined;
    }
    return { folder, ...rest };
  } catch {
    return undefined;
  }
}
