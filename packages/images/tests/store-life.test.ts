/** The life of content: holds, removal, two runs at once, a full disk, and what a crash may leave. */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { openImageStore } from '../src/open-image-store.js';
import { LayoutFixture } from '../src/testing/layout-fixture.js';
import { checkFilesystem, expectSameBytes, withMountedRootfs } from '../src/testing/mounted-rootfs.js';
import { buildTar, type FixtureEntry } from '../src/testing/tar-fixture.js';
import { listTree } from '../src/testing/tree-listing.js';
import { afterThisTest, failureOf, isAvailable, scratchFolder, scratchStore, streamOf } from './scratch.js';

const isRoot = isAvailable('mounts and other users', true, 'mount');

/** A bit of everything that the second pass has to repair. */
const ENTRIES: FixtureEntry[] = [
  { name: 'bin', type: 'dir', xattrs: { 'trusted.d': 'v' } },
  { name: 'bin/ping', mode: 0o755, content: 'elf', xattrs: { 'security.capability': capability() } },
  {
    name: 'bin/sudo',
    mode: 0o4755,
    content: 'x'.repeat(9000),
    mtimeSeconds: 1_500_000_000,
    mtimeNanoseconds: 42,
  },
  { name: 'bin/hard', type: 'hardlink', linkName: 'bin/sudo' },
  { name: 'long', xattrs: { 'user.large': Buffer.alloc(3000, 7), 'user.nul': Buffer.from([0, 34, 92, 10]) } },
  { name: 'acl', type: 'dir', mode: 0o770, xattrs: { 'system.posix_acl_access': acl() } },
  { name: 'null', type: 'char', deviceMajor: 1, deviceMinor: 3, mode: 0o666 },
  { name: 'link', type: 'symlink', linkName: `/${'t'.repeat(1500)}` },
];

function capability(): Buffer {
  // cap_net_raw+ep, revision 2 of the format in linux/capability.h
  const bytes = Buffer.alloc(20);
  bytes.writeUInt32LE(0x0200_0001, 0);
  bytes.writeUInt32LE(1 << 13, 4);
  return bytes;
}

function tarOf(text: string): Buffer {
  return buildTar([...ENTRIES, { name: 'text', content: text }]);
}

/** user::rwx user:5:rwx group::rwx mask::rwx other::---, as in linux/posix_acl_xattr.h */
function acl(): Buffer {
  const entries = [
    [0x01, 7, -1],
    [0x02, 7, 5],
    [0x04, 7, -1],
    [0x10, 7, -1],
    [0x20, 0, -1],
  ] as const;
  const bytes = Buffer.alloc(4 + 8 * entries.length);
  bytes.writeUInt32LE(2, 0);
  entries.forEach(([tag, permissions, id], i) => {
    bytes.writeUInt16LE(tag, 4 + 8 * i);
    bytes.writeUInt16LE(permissions, 6 + 8 * i);
    bytes.writeInt32LE(id, 8 + 8 * i);
  });
  return bytes;
}

async function filesOf(root: string): Promise<string[]> {
  const found: string[] = [];
  for (const folder of ['blobs/sha256', 'images', 'refs', 'rootfs', 'holds', 'tmp']) {
    found.push(...(await readdir(join(root, folder))).map((name) => `${folder}/${name}`));
  }
  return found;
}

describe('the rootfs file', () => {
  test('is the same byte for byte in two stores, clean, read-only', async () => {
    const paths: string[] = [];
    for (let i = 0; i < 2; i++) {
      const store = await scratchStore();
      await store.importArchive(streamOf(tarOf('same')), 'a');
      const hold = await store.acquire('a', 'h');
      const info = await stat(hold.path);
      expect(info.mode & 0o7777).toBe(0o444);
      expect(info.uid).toBe(process.getuid!());
      checkFilesystem(hold.path);
      paths.push(hold.path);
      // Inodes per group are what the guest's growth multiplies: one per 16 KiB.
      const header = execFileSync('dumpe2fs', ['-h', hold.path], { encoding: 'utf8', stdio: 'pipe' });
      expect(header).toMatch(/Inodes per group: +8192/);
    }
    expectSameBytes(paths[0]!, paths[1]!);
  });

  test.skipIf(!isRoot)(
    'keeps attributes, capabilities, times, devices; children run as another user',
    async () => {
      const store = await scratchStore({ runChildrenAs: { uid: 65_534, gid: 65_534 } });
      await store.importArchive(streamOf(tarOf('x')), 'a');
      const { path } = await store.acquire('a', 'h');
      const tree = await withMountedRootfs(path, listTree);
      const at = (name: string) =>
        tree.find((entry) => entry.path === Buffer.from(`/${name}`).toString('hex'))!;
      const hex = (text: string) => Buffer.from(text).toString('hex');
      expect(at('bin/ping').xattrs[hex('security.capability')]).toBe(capability().toString('hex'));
      expect(at('bin').xattrs).toEqual({ [hex('trusted.d')]: hex('v') });
      expect(at('long').xattrs).toEqual({
        [hex('user.large')]: Buffer.alloc(3000, 7).toString('hex'),
        [hex('user.nul')]: '00225c0a',
      });
      expect(at('acl').xattrs[hex('system.posix_acl_access')]).toBe(acl().toString('hex'));
      expect(at('bin/sudo')).toMatchObject({ mode: 0o104755, mtime: '1500000000000000042', links: 2 });
      expect(at('null')).toMatchObject({ mode: 0o020666, device: 0x103 });
      expect(Buffer.from(at('link').target, 'hex')).toHaveLength(1501);
      expect(tree.some((entry) => entry.path === hex('/lost+found'))).toBe(false);
      expect((await stat(path)).uid).toBe(0);
    },
  );

  test('has an inode for every file of an image of many', { timeout: 30_000 }, async () => {
    const entries = Array.from({ length: 30_000 }, (_, i) => ({ name: `d${i % 300}/f${i}` }));
    const store = await scratchStore();
    await store.importArchive(streamOf(buildTar(entries)), 'many');
    const { path } = await store.acquire('many', 'h');
    checkFilesystem(path);
    const header = execFileSync('dumpe2fs', ['-h', path], { encoding: 'utf8', stdio: 'pipe' });
    expect(Number(/Inode count: +([0-9]+)/.exec(header)![1])).toBeGreaterThan(36_000);
  });

  test('attributes that ext4 cannot hold are an error that names the file', async () => {
    const store = await scratchStore();
    const entries = [{ name: 'greedy', xattrs: { 'user.a': Buffer.alloc(5000) } }];
    await store.importArchive(streamOf(buildTar(entries)), 'a');
    const failure = await failureOf(store.acquire('a', 'h'));
    expect(failure).toMatchObject({ code: 'invalid-layer', message: expect.stringContaining('greedy') });
  });
});

describe('holds and removal', () => {
  test('what is held stays, whatever is removed or pruned', async () => {
    const store = await scratchStore();
    await store.importArchive(streamOf(tarOf('held')), 'held');
    await store.importArchive(streamOf(tarOf('free')), 'free');
    const hold = await store.acquire('held', 'sandbox-1');
    await store.acquire('free', 'sandbox-2');
    await store.release('sandbox-2');
    await store.release('sandbox-2');
    expect(await store.holders()).toEqual(['sandbox-1']);
    expect(await failureOf(store.remove('held'))).toMatchObject({
      code: 'in-use',
      message: 'docker.io/library/held:latest is used by 1 sandbox; remove it first',
    });
    expect((await store.prune()).removed).toEqual(['docker.io/library/free:latest']);
    expect(await store.isReady('held')).toBe(true);
    expect(await store.isReady('free')).toBe(false);
    checkFilesystem(hold.path);
    await store.release('sandbox-1');
    await store.remove('held');
    expect(await store.list()).toEqual([]);
    expect(await failureOf(store.remove('held'))).toMatchObject({ code: 'not-found' });
  });

  test('a name that moves on leaves the old image to its holder', async () => {
    const store = await scratchStore();
    const old = await store.importArchive(streamOf(tarOf('old')), 'app');
    const hold = await store.acquire('app', 'h');
    const young = await store.importArchive(streamOf(tarOf('young')), 'app');
    expect((await store.get('app'))!.digest).toBe(young.digest);
    expect((await store.list()).map(({ reference }) => reference).sort()).toEqual([
      'docker.io/library/app:latest',
      `docker.io/library/app@${old.digest}`,
    ]);
    await store.prune();
    checkFilesystem(hold.path);
    expect((await store.list()).map(({ digest }) => digest)).toEqual([old.digest]);
  });

  test('two names of one image: one goes, the content stays', async () => {
    const store = await scratchStore();
    await store.importArchive(streamOf(tarOf('x')), 'one');
    await store.importArchive(streamOf(tarOf('x')), 'two');
    await store.acquire('one', 'h');
    await store.remove('two');
    expect(await failureOf(store.remove('one'))).toMatchObject({ code: 'in-use' });
    expect((await store.list())[0]).toMatchObject({ reference: 'docker.io/library/one:latest', holders: 1 });
  });

  test('prune during a build takes nothing of it', async () => {
    const store = await scratchStore();
    await store.importArchive(streamOf(tarOf('busy')), 'busy');
    const building = store.acquire('busy', 'h');
    for (let i = 0; i < 20; i++) expect((await store.prune()).removed).toEqual([]);
    checkFilesystem((await building).path);
  });

  test('a cancelled build ends and can be started again', async () => {
    const store = await scratchStore();
    await store.importArchive(streamOf(tarOf('c'.repeat(3_000_000))), 'c');
    const abort = new AbortController();
    const cancelled = failureOf(
      store.acquire('c', 'h', {
        signal: abort.signal,
        onProgress: ({ stage }) => stage === 'read' && abort.abort(),
      }),
    );
    expect(await cancelled).toMatchObject({ code: 'aborted' });
    expect(await store.holders()).toEqual([]);
    checkFilesystem((await store.acquire('c', 'h')).path);
  });
});

describe('a restart', () => {
  test('finds images, root file systems and holds again', async () => {
    const root = join(await scratchFolder(), 'store');
    const first = await openImageStore({ root });
    await first.importArchive(streamOf(tarOf('x')), 'a');
    const { path } = await first.acquire('a', 'sandbox');
    await first.close();
    const second = await scratchStore({ root });
    expect(await second.holders()).toEqual(['sandbox']);
    expect(await second.isReady('a')).toBe(true);
    expect((await second.acquire('a', 'other')).path).toBe(path);
  });

  test('what an older version built is built anew, and stays for who holds it', async () => {
    const root = join(await scratchFolder(), 'store');
    const first = await openImageStore({ root });
    const image = await first.importArchive(streamOf(tarOf('x')), 'a');
    const { path } = await first.acquire('a', 'old');
    await first.close();
    // As that version would have named it: in the file, the image's record and the hold.
    const [name, older] = [basename(path, '.ext4'), 'f'.repeat(40)];
    await rename(path, join(root, `rootfs/${older}.ext4`));
    await rename(join(root, `rootfs/${name}.json`), join(root, `rootfs/${older}.json`));
    const records = [`images/${image.digest.replace(':', '-')}.json`];
    for (const hold of await readdir(join(root, 'holds'))) records.push(`holds/${hold}`);
    for (const record of records) {
      const text = await readFile(join(root, record), 'utf8');
      expect(text).toContain(name);
      await writeFile(join(root, record), text.replaceAll(name, older));
    }
    const second = await scratchStore({ root });
    expect(await second.isReady('a')).toBe(false);
    expect((await second.acquire('a', 'new')).path).toBe(path);
    expect((await stat(join(root, `rootfs/${older}.ext4`))).size).toBeGreaterThan(0);
    await second.release('old');
    await second.prune();
    await expect(stat(join(root, `rootfs/${older}.ext4`))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  test('sweeps what a crash left, and forgets content that is damaged', async () => {
    const root = join(await scratchFolder(), 'store');
    const first = await openImageStore({ root });
    const a = await first.importArchive(streamOf(tarOf('a')), 'a');
    await first.importArchive(streamOf(tarOf('b')), 'b');
    await first.acquire('b', 'h');
    await first.close();
    await mkdir(join(root, 'tmp/build-1'));
    await writeFile(join(root, 'tmp/build-1/rootfs.ext4'), 'half');
    await writeFile(join(root, 'rootfs/orphan.ext4'), 'x');
    await writeFile(join(root, 'blobs/sha256', 'f'.repeat(64)), 'x');
    await writeFile(join(root, 'refs/garbage.json'), '{"ref');
    await truncate(join(root, 'blobs', a.layers[0]!.digest.replace(':', '/')), 100);
    const second = await scratchStore({ root });
    expect((await second.list()).map(({ reference }) => reference)).toEqual(['docker.io/library/b:latest']);
    const left = await filesOf(root);
    expect(left.filter((name) => /tmp\/|orphan|f{64}/.test(name))).toEqual([]);
  });

  test('one process at a time has a store open', async () => {
    const root = join(await scratchFolder(), 'store');
    const holder = await scratchStore({ root });
    const second = failureOf(openImageStore({ root }));
    expect(await second).toMatchObject({ code: 'in-use' });
    await holder.close();
    await (await openImageStore({ root })).close();
  }, 15_000);

  test('kill -9 at any moment leaves a complete rootfs or none', { timeout: 60_000 }, async () => {
    const folder = await scratchFolder();
    const root = join(folder, 'store');
    const archive = join(folder, 'a.tar');
    await writeFile(archive, tarOf('k'.repeat(20_000_000)));
    const script = `
      import { openImageStore } from ${JSON.stringify(pathToFileURL(join(import.meta.dirname, '../dist/index.js')).href)};
      import { createReadStream } from 'node:fs';
      const store = await openImageStore({ root: ${JSON.stringify(root)} });
      process.stdout.write('open');
      await store.importArchive(createReadStream(${JSON.stringify(archive)}), 'a');
      await store.acquire('a', 'h');
      await new Promise((resolve) => setTimeout(resolve, 60000));`;
    for (const delay of [5, 30, 60, 90, 130, 180, 250]) {
      const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await new Promise((resolve) => child.stdout.once('data', resolve));
      await new Promise((resolve) => setTimeout(resolve, delay));
      child.kill('SIGKILL');
      await new Promise((resolve) => child.once('close', resolve));
      const store = await openImageStore({ root });
      try {
        for (const name of (await readdir(join(root, 'rootfs'))).filter((file) => file.endsWith('.ext4'))) {
          checkFilesystem(join(root, 'rootfs', name));
        }
        expect(await readdir(join(root, 'tmp'))).toEqual([]);
        if (await store.get('a')) checkFilesystem((await store.acquire('a', 'h')).path);
        await store.release('h');
        await store.prune();
      } finally {
        await store.close();
      }
    }
  });
});

test.skipIf(!isRoot)('a full disk is told as such, and leaves room and order behind', async () => {
  const folder = await scratchFolder();
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', folder]);
  afterThisTest(async () => void execFileSync('umount', [folder]));
  const layout = await LayoutFixture.create(join(await scratchFolder(), 'layout'));
  const random = createHash('shake256', { outputLength: 9 << 20 })
    .update('seed')
    .digest();
  await layout.addImage({
    layers: [{ tar: buildTar([{ name: 'r', content: random }]), compression: 'gzip' }],
  });
  await layout.addImage({ layers: [{ tar: buildTar([{ name: 'small' }]) }], tag: 'small' });
  const store = await scratchStore({ root: join(folder, 'store') });
  await store.importFolder(layout.folder, 'a:latest');
  expect(await failureOf(store.acquire('a', 'h'))).toMatchObject({ code: 'no-space' });
  expect(await store.holders()).toEqual([]);
  expect(await readdir(join(folder, 'store/tmp'))).toEqual([]);
  // A little is left: enough to begin, so that mke2fs itself meets the end of the disk.
  await writeFile(join(folder, 'ballast'), Buffer.alloc(14.9 * 2 ** 20));
  await store.importFolder(layout.folder, 'a:small');
  expect(await failureOf(store.acquire('a:small', 'h'))).toMatchObject({ code: 'no-space' });
  const big = await LayoutFixture.create(join(await scratchFolder(), 'big'));
  await big.addImage({
    layers: [{ tar: buildTar([{ name: 'x', content: Buffer.concat([random, random]) }]) }],
  });
  expect(await failureOf(store.importFolder(big.folder, 'b'))).toMatchObject({ code: 'no-space' });
  await rm(join(folder, 'ballast'));
  expect((await store.acquire('a:small', 'h')).image.layers).toHaveLength(1);
});
