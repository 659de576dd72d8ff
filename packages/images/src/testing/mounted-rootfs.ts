/**
 * Rootfs files looked at from outside: through the kernel, loop-mounted read-only for the time of one function
 * (needs root; whatever happens, the mount is gone afterwards), by e2fsck, byte for byte. For tests only.
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

/** Throws unless both files have the same bytes. They are sparse and too large to be read. */
export function expectSameBytes(one: string, other: string): void {
  execFileSync('qemu-img', ['compare', '-f', 'raw', '-F', 'raw', one, other], { stdio: 'pipe' });
}
