/**
 * What guests boot from: the folder that `tools/guest-assets/build.sh` makes. Read by the QEMU driver.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { VmmError } from '../driver.js';

/** The files of the folder and their digests. */
export interface GuestAssets {
  kernelPath: string;
  initramfsPath: string;
  modulesPath: string;
  /** Program that prints the rate of this host's time stamp counter in kHz. */
  measureTscPath: string;
  kernelVersion: string;
  agentVersion: string;
  /** sha256 of each file by name. */
  digests: Record<string, string>;
}

/** Reads the manifest. Throws {@link VmmError} `vmm-missing` when the folder is not complete. */
export async function readGuestAssets(folder: string): Promise<GuestAssets> {
  const path = join(folder, 'manifest.json');
  let manifest: Record<string, unknown>;
  try {
    manifest = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
  } catch (error) {
    throw new VmmError(
      'vmm-missing',
      `the guest's kernel and agent are not built: ${path} cannot be read; run tools/guest-assets/build.sh ${folder}`,
      { cause: error },
    );
  }
  const text = (key: string): string => {
    const value = manifest[key];
    if (typeof value === 'string' && value !== '') return value;
    throw new VmmError('vmm-missing', `${path} has no '${key}'; remove the folder and build it again`);
  };
  const digests = manifest['files'];
  const kernel = text('kernel');
  const needed = [kernel, 'initramfs.cpio', 'modules.ext4', 'measure-tsc'];
  if (typeof digests !== 'object' || digests === null || !needed.every((name) => name in digests)) {
    throw new VmmError(
      'vmm-missing',
      `${path} does not name every file; remove the folder and build it again`,
    );
  }
  return {
    kernelPath: join(folder, kernel),
    initramfsPath: join(folder, 'initramfs.cpio'),
    modulesPath: join(folder, 'modules.ext4'),
    measureTscPath: join(folder, 'measure-tsc'),
    kernelVersion: text('kernelVersion'),
    agentVersion: text('agentVersion'),
    digests: digests as Record<string, string>,
  };
}
