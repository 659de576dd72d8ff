/** Cuts a real rootfs file to disks of several sizes; e2fsck and the kernel judge the result. */
import { execFileSync } from 'node:child_process';
import { openSync, statSync, truncateSync, writeSync } from 'node:fs';
import { readFile, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type DiskFit, fitDisk } from '../src/rootfs/disk-fit.js';
import { checkFilesystem } from '../src/testing/mounted-rootfs.js';
import { buildTar } from '../src/testing/tar-fixture.js';
import { isAvailable, scratchFolder, scratchStore, streamOf } from './scratch.js';

const gib = 2 ** 30;
const canMount = isAvailable('mounting a cut file system', true, 'mount');

async function makeRootfs(): Promise<string> {
  const store = await scratchStore();
  await store.importArchive(streamOf(buildTar([{ name: 'hello', content: 'hello' }])), 'a');
  const { path } = await store.acquire('a', 'h');
  const copy = join(await scratchFolder(), 'rootfs.ext4');
  execFileSync('cp', ['--sparse=always', path, copy]);
  execFileSync('chmod', ['600', copy]);
  return copy;
}

/** Does to the file what the overlay does to the machine's disk. */
function apply(path: string, fit: DiskFit): void {
  if (fit.head) writeSync(openSync(path, 'r+'), fit.head, 0, fit.head.length, 0);
  truncateSync(path, fit.sizeBytes);
}

function header(path: string): Record<string, string> {
  const lines = execFileSync('dumpe2fs', ['-h', path], { encoding: 'utf8', stdio: 'pipe' }).split('\n');
  return Object.fromEntries(lines.map((line) => line.split(/: +/) as [string, string]));
}

describe('a disk cut from a rootfs file', () => {
  test.each([1, 2, 5, 10, 16])('of %i GiB is a clean file system of that size', async (size) => {
    const path = await makeRootfs();
    const fit = await fitDisk(path, size * gib);
    expect(fit).toMatchObject({ sizeBytes: size * gib, mustGrow: false });
    apply(path, fit);
    checkFilesystem(path);
    const seen = header(path);
    expect(Number(seen['Block count']) * 4096).toBe(size * gib);
    expect(Number(seen['Inode count'])).toBe((size * gib) / 16_384);
  });

  test.skipIf(!canMount)(
    'is as large for the kernel as one made in that size, and can be written',
    async () => {
      const path = await makeRootfs();
      apply(path, await fitDisk(path, 3 * gib));
      const plain = join(await scratchFolder(), 'plain.ext4');
      const { blocks, inodes } = { blocks: (3 * gib) / 4096, inodes: (3 * gib) / 16_384 };
      const options = ['-b', '4096', '-I', '256', '-m', '0', '-G', '8', '-J', 'size=64', '-N', `${inodes}`];
      const features = '^64bit,^metadata_csum_seed,^orphan_file,^resize_inode,metadata_csum';
      execFileSync('mke2fs', ['-q', '-F', '-t', 'ext4', ...options, '-O', features, plain, `${blocks}`]);
      const sizes: number[] = [];
      for (const file of [path, plain]) {
        const folder = await scratchFolder();
        execFileSync('mount', ['-o', 'loop', file, folder]);
        try {
          const found = await statfs(folder);
          sizes.push(found.blocks);
          expect(found.files).toBe(inodes);
          await writeFile(join(folder, 'new'), Buffer.alloc(8 * 2 ** 20, 1));
          if (file === path) expect(await readFile(join(folder, 'hello'), 'utf8')).toBe('hello');
        } finally {
          execFileSync('umount', [folder]);
        }
        checkFilesystem(file);
      }
      expect(sizes[0]).toBe(sizes[1]);
    },
  );

  test.each([2.5, 20, 100])('of %f GiB is left to be grown, and can be', async (size) => {
    const path = await makeRootfs();
    const fit = await fitDisk(path, size * gib);
    expect(fit).toMatchObject({ sizeBytes: size * gib, mustGrow: true });
    apply(path, fit);
    execFileSync('resize2fs', [path], { stdio: 'pipe' });
    checkFilesystem(path);
    expect(Number(header(path)['Block count']) * 4096).toBe(size * gib);
  });

  test('is never smaller than what the image holds', async () => {
    const path = await makeRootfs();
    for (const command of ['write /dev/null big', 'fallocate /big 0 300000'])
      execFileSync('debugfs', ['-w', '-R', command, path], { stdio: 'pipe' });
    const fit = await fitDisk(path, 0.1 * gib);
    expect(fit).toMatchObject({ sizeBytes: 2 * gib, mustGrow: false });
    const before = statSync(path).size;
    apply(path, fit);
    expect(statSync(path).size).toBeLessThan(before);
    execFileSync('e2fsck', ['-fn', path], { stdio: 'pipe' });
  });

  test('is refused for what is no file system', async () => {
    const path = join(await scratchFolder(), 'nothing');
    await writeFile(path, Buffer.alloc(70_000));
    await expect(fitDisk(path, gib)).rejects.toMatchObject({ code: 'build-failed' });
  });
});
