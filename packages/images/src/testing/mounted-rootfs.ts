/**
 * A rootfs file looked at through the kernel: loop-mounted read-only for the time of one function. Needs root.
 * For tests only; whatever happens, the mount is gone afterwards.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Mounts, runs, unmounts. */
export async function withMountedRootfs<T>(
  path: string,
  use: (folder: string) => Promise<T> | T,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sandlot-rootfs-'));
  try {
    execFileSync('mount', ['-t', 'ext4', '-o', 'loop,ro,noload', path, folder]);
    try {
      return await use(folder);
    } finally {
      execFileSync('umount', [folder]);
    }
  } finally {
    await rmdir(folder);
  }
}

/** Output of `e2fsck -fn`; throws if it finds anything. */
export function checkFilesystem(path: string): string {
  return execFileSync('e2fsck', ['-fn', path], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}
