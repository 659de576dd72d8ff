/** How tests fill the disk of a test node's data. Used by the tests of full disks. */
import { rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestNode } from './test-node.js';

const mib = 2 ** 20;

/** Bytes that are free on it. */
export function freeBytes(node: TestNode): number {
  const { bavail, bsize } = statfsSync(node.dataFolder);
  return bavail * bsize;
}

/** Leaves so much free while `body` runs; 0: nothing at all, however little the file system itself needs. */
export async function withFree(node: TestNode, mebibytes: number, body: () => Promise<void>): Promise<void> {
  const ballast = join(node.dataFolder, 'ballast');
  try {
    try {
      writeFileSync(ballast, Buffer.alloc(freeBytes(node) - mebibytes * mib, 'b'), { flush: true });
    } catch (error) {
      if (mebibytes > 0 || (error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    }
    await body();
  } finally {
    rmSync(ballast, { force: true });
  }
}
