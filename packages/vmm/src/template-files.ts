/**
 * The files of a template: memory, device state, module disk, and `template.json`, which is written
 * last and makes it complete. Used by the drivers to write, and by the node agent to find templates
 * from before its restart.
 */
import { readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Template } from './driver.js';

/** Paths inside a template's folder. */
export function templatePaths(folder: string): {
  memory: string;
  state: string;
  modules: string;
  description: string;
} {
  return {
    memory: join(folder, 'memory'),
    state: join(folder, 'state'),
    modules: join(folder, 'modules.ext4'),
    description: join(folder, 'template.json'),
  };
}

interface Description extends Omit<Template, 'folder'> {
  /** Size in bytes of each file beside it: a file cut short is no template. */
  files: Record<string, number>;
}

/** Removes what is in a folder: what an earlier attempt, which was cut off, has left. */
export async function emptyFolder(folder: string): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  await Promise.all(names.map((name) => rm(join(folder, name), { recursive: true, force: true })));
}

/** Marks the template in `template.folder` complete; its files must be there. */
export async function completeTemplate(template: Template, files: readonly string[]): Promise<void> {
  const sizes: Record<string, number> = {};
  for (const name of files) sizes[name] = (await stat(join(template.folder, name))).size;
  const { folder, ...rest } = template;
  const description: Description = { ...rest, files: sizes };
  const path = templatePaths(folder).description;
  await writeFile(`${path}.tmp`, `${JSON.stringify(description, null, 2)}\n`, { mode: 0o444 });
  await rename(`${path}.tmp`, path);
}

/**
 * The complete template in this folder; undefined if there is none, or it is damaged. Whether it can
 * still be used is decided by its fingerprint against {@link DriverInfo.fingerprint}.
 */
export async function readTemplate(folder: string): Promise<Template | undefined> {
  let description: Partial<Description>;
  try {
    description = JSON.parse(
      await readFile(templatePaths(folder).description, 'utf8'),
    ) as Partial<Description>;
    for (const [name, size] of Object.entries(description.files ?? {})) {
      if ((await stat(join(folder, name))).size !== size) return undefined;
    }
  } catch {
    return undefined;
  }
  const { shape, networkKind, fingerprint, files } = description;
  if (!files || typeof fingerprint !== 'string') return undefined;
  if (networkKind !== 'tap' && networkKind !== 'user') return undefined;
  if (!Number.isInteger(shape?.vcpus) || !Number.isInteger(shape?.memoryMiB)) return undefined;
  return { folder, shape: shape!, networkKind, fingerprint };
}
