/** The name of a built root file system: a hash of all that the build depends on. Used by records and builds. */
import { createHash } from 'node:crypto';
import { BUILD_VERSION } from '../rootfs/make-filesystem.js';

/** Name of the rootfs of these layers, as this version builds it. */
export function rootfsKeyOf(diffIds: string[]): string {
  const input = JSON.stringify({ version: BUILD_VERSION, diffIds });
  return createHash('sha256').update(input).digest('hex').slice(0, 40);
}
