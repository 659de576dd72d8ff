/** Imports of every form, the choice of platform, and archives that are not what they should be. */
import { execFileSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import type { ImageStore } from '../src/store.js';
import { compress, LayoutFixture, tarOfLayout } from '../src/testing/layout-fixture.js';
import { withMountedRootfs } from '../src/testing/mounted-rootfs.js';
import { buildTar, whiteout } from '../src/testing/tar-fixture.js';
import { failureOf, isAvailable, scratchFolder, scratchStore, streamOf } from './scratch.js';

const canMount = isAvailable('looking into a rootfs', true, 'mount');
const canSkopeo = isAvailable('archives made by skopeo', false, 'skopeo');
const ROOTFS = buildTar([
  { name: './', type: 'dir' },
  { name: './etc', type: 'dir' },
  { name: './etc/hello', content: 'from the image' },
]);

async function newLayout(): Promise<LayoutFixture> {
  return LayoutFixture.create(join(await scratchFolder(), 'layout'));
}

async function helloOf(store: ImageStore, name: string): Promise<string> {
  const hold = await store.acquire(name, `holder-${name}`);
  return withMountedRootfs(hold.path, (folder) => readFile(join(folder, 'etc/hello'), 'utf8'));
}

describe.skipIf(!canMount)('forms', () => {
  test.each(['plain', 'gzip', 'zstd'] as const)('a rootfs tar, %s', async (compression) => {
    const store = await scratchStore();
    const image = await store.importArchive(streamOf(compress(ROOTFS, compression)), 'my/rootfs:1');
    expect(image).toMatchObject({
      reference: 'docker.io/my/rootfs:1',
      rootfsBytes: 0,
      config: { env: [], user: '' },
    });
    expect(await helloOf(store, 'my/rootfs:1')).toBe('from the image');
  });

  test.each(['plain', 'gzip', 'zstd'] as const)('an OCI layout tar, %s', async (compression) => {
    const layout = await newLayout();
    await layout.addImage({ layers: [{ tar: ROOTFS, compression: 'gzip' }], config: { Cmd: ['x'] } });
    const store = await scratchStore();
    const image = await store.importArchive(
      streamOf(compress(await tarOfLayout(layout), compression)),
      'a:b',
    );
    expect(image.config.cmd).toEqual(['x']);
    expect(await helloOf(store, 'a:b')).toBe('from the image');
  });

  test('an OCI layout folder', async () => {
    const layout = await newLayout();
    await layout.addImage({ layers: [{ tar: ROOTFS, compression: 'zstd' }] });
    const store = await scratchStore();
    await store.importFolder(layout.folder, 'a');
    expect(await helloOf(store, 'a')).toBe('from the image');
  });

  test.skipIf(!canSkopeo)('a docker-archive, plain and compressed as a whole', async () => {
    const layout = await newLayout();
    const upper = buildTar([whiteout('etc/gone'), { name: 'etc/hello', content: 'upper' }]);
    const lower = buildTar([{ name: 'etc/gone' }, { name: 'etc/hello', content: 'lower' }]);
    await layout.addImage({
      layers: [
        { tar: lower, compression: 'gzip' },
        { tar: upper, compression: 'gzip' },
      ],
      config: { Env: ['PATH=/custom/bin'], Entrypoint: ['/e'], User: '12:34' },
    });
    const path = join(await scratchFolder(), 'image.tar');
    execFileSync('skopeo', ['copy', '-q', `oci:${layout.folder}:latest`, `docker-archive:${path}:app:v1`]);
    const bytes = await readFile(path);
    const store = await scratchStore();
    const image = await store.importArchive(streamOf(bytes), 'app:v1');
    expect(image.config).toMatchObject({ env: ['PATH=/custom/bin'], entrypoint: ['/e'], user: '12:34' });
    expect(await helloOf(store, 'app:v1')).toBe('upper');
    const again = await store.importArchive(streamOf(gzipSync(bytes)), 'app:v2');
    expect(again.digest).toBe(image.digest);
  });

  test('layers are what their bytes say, whatever the media type says', async () => {
    const layout = await newLayout();
    const gzip = 'application/vnd.docker.image.rootfs.diff.tar.gzip';
    // Two gzip members in one layer, as parallel compressors write them.
    const members = buildTar([{ name: 'm', content: 'x'.repeat(5000) }]);
    const multi = Buffer.concat([gzipSync(members.subarray(0, 2000)), gzipSync(members.subarray(2000))]);
    const descriptor = await layout.put(multi, gzip);
    const image = await layout.storeImage({
      isDocker: true,
      layers: [
        { tar: ROOTFS, compression: 'zstd', mediaType: gzip },
        { tar: buildTar([{ name: 'plain' }]), mediaType: gzip },
        { tar: members, compression: 'gzip' },
      ],
    });
    const manifest = JSON.parse(await readFile(layout.blobPath(image.digest), 'utf8'));
    manifest.layers[2] = descriptor;
    await layout.list(await layout.put(Buffer.from(JSON.stringify(manifest)), image.mediaType), 'latest');
    const store = await scratchStore();
    await store.importFolder(layout.folder, 'a');
    expect(await helloOf(store, 'a')).toBe('from the image');
  });

  test('100 layers', async () => {
    const layout = await newLayout();
    const layers = Array.from({ length: 100 }, (_, i) => ({
      tar: buildTar([
        { name: `layer-${i}`, content: `${i}` },
        { name: 'etc', type: 'dir' },
        { name: 'etc/hello', content: `layer ${i}` },
      ]),
      compression: 'gzip' as const,
    }));
    await layout.addImage({ layers });
    const store = await scratchStore();
    await store.importFolder(layout.folder, 'many');
    expect(await helloOf(store, 'many')).toBe('layer 99');
  });

  test('a scratch image: no shell, hardly a file', async () => {
    const layout = await newLayout();
    await layout.addImage({ layers: [{ tar: buildTar([{ name: 'app', mode: 0o755, content: 'ELF' }]) }] });
    await layout.addImage({ layers: [], tag: 'empty' });
    const store = await scratchStore();
    await store.importFolder(layout.folder, 'a:latest');
    expect((await store.acquire('a', 'h')).image.rootfsBytes).toBeGreaterThan(0);
    await store.importFolder(layout.folder, 'a:empty');
    expect((await store.acquire('a:empty', 'h')).image.layers).toEqual([]);
  });
});

describe('platforms', () => {
  const image = { layers: [{ tar: ROOTFS }] };
  const amd64 = { os: 'linux', architecture: 'amd64' };
  const store = () => scratchStore({ platform: amd64 });

  async function indexOf(layout: LayoutFixture, ...architectures: string[]) {
    const manifests = [];
    for (const architecture of architectures) {
      const platform = { os: 'linux', architecture };
      manifests.push(await layout.storeImage({ ...image, platform, config: { User: architecture } }));
    }
    return manifests;
  }

  test('ours is chosen from an index and a nested index; attestations are skipped', async () => {
    const layout = await newLayout();
    const manifests = await indexOf(layout, 'arm64', 'amd64');
    const attestation = {
      ...manifests[0]!,
      platform: { os: 'unknown', architecture: 'unknown' },
      annotations: { 'vnd.docker.reference.type': 'attestation-manifest' },
    };
    const inner = await layout.storeIndex([attestation, ...manifests]);
    await layout.list(await layout.storeIndex([inner]), 'latest');
    const stored = await (await store()).importFolder(layout.folder, 'a');
    expect(stored).toMatchObject({ platform: amd64, config: { user: 'amd64' } });
  });

  test('the plainest variant is chosen', async () => {
    const layout = await newLayout();
    const variants = [];
    for (const variant of ['v3', 'v2']) {
      variants.push(
        await layout.storeImage({ ...image, platform: { ...amd64, variant }, config: { User: variant } }),
      );
    }
    await layout.list(await layout.storeIndex(variants), 'latest');
    expect((await (await store()).importFolder(layout.folder, 'a')).config.user).toBe('v2');
  });

  test('an entry without platform is judged by its config', async () => {
    const layout = await newLayout();
    const manifests = await indexOf(layout, 'arm64', 'amd64');
    const bare = manifests.map(({ mediaType, digest, size }) => ({ mediaType, digest, size }));
    await layout.list(await layout.storeIndex(bare), 'latest');
    expect((await (await store()).importFolder(layout.folder, 'a')).config.user).toBe('amd64');
  });

  test('a wrong architecture is an early, clear error', async () => {
    const layout = await newLayout();
    await layout.list(await layout.storeIndex(await indexOf(layout, 'arm64', 's390x')), 'index');
    await layout.list((await indexOf(layout, 'arm64'))[0]!, 'single');
    const into = await store();
    expect(await failureOf(into.importFolder(layout.folder, 'a:index'))).toMatchObject({
      code: 'wrong-platform',
      message: expect.stringContaining('linux/arm64, linux/s390x'),
    });
    expect(await failureOf(into.importFolder(layout.folder, 'a:single'))).toMatchObject({
      code: 'wrong-platform',
    });
  });

  test('indexes nested too deep are refused', async () => {
    const layout = await newLayout();
    let top = (await indexOf(layout, 'amd64'))[0]!;
    for (let i = 0; i < 8; i++) top = await layout.storeIndex([top]);
    await layout.list(top, 'latest');
    expect(await failureOf((await store()).importFolder(layout.folder, 'a'))).toMatchObject({
      code: 'invalid-manifest',
    });
  });
});

describe('bad archives', () => {
  test.each([
    ['nothing', Buffer.alloc(0), 'truncated'],
    ['text', Buffer.from('hello, this is no archive at all '.repeat(40)), 'unknown-compression'],
    ['xz', Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 0]), 'unknown-compression'],
    ['bzip2', Buffer.from('BZh91AY&SY'), 'unknown-compression'],
    ['a cut tar', ROOTFS.subarray(0, 1800), 'truncated'],
    ['a cut gzip', gzipSync(ROOTFS).subarray(0, 120), 'truncated'],
    ['a tar with no files', Buffer.alloc(1024), 'invalid-layer'],
  ])('%s', async (_name, bytes, code) => {
    const store = await scratchStore();
    expect(await failureOf(store.importArchive(streamOf(bytes), 'a'))).toMatchObject({ code });
    expect(await store.list()).toEqual([]);
    expect((await store.prune()).freedBytes).toBe(0);
  });

  test('a bomb stops at the limit', async () => {
    const bomb = gzipSync(Buffer.concat([ROOTFS.subarray(0, 1536), Buffer.alloc(64 << 20)]));
    const store = await scratchStore({ limits: { maxLayerBytes: 8 << 20 } });
    const failure = await failureOf(store.importArchive(streamOf(bomb), 'a'));
    expect(failure).toMatchObject({ code: 'too-large', message: expect.stringContaining('bomb') });
  });

  test('a sparse file of a petabyte stops at the limit', async () => {
    const pax: [string, string][] = [
      ['GNU.sparse.size', `${2 ** 50}`],
      ['GNU.sparse.map', `0,4`],
    ];
    const store = await scratchStore();
    await store.importArchive(streamOf(buildTar([{ name: 'huge', content: 'tiny', pax }])), 'a');
    expect(await failureOf(store.acquire('a', 'h'))).toMatchObject({ code: 'too-large' });
    expect(await store.holders()).toEqual([]);
  });

  test('a sender that breaks off leaves nothing', async () => {
    async function* broken() {
      yield ROOTFS.subarray(0, 600);
      throw new Error('the connection was lost');
    }
    const store = await scratchStore();
    expect((await failureOf(store.importArchive(broken(), 'a'))).message).toContain('connection was lost');
    expect((await store.prune()).freedBytes).toBe(0);
  });

  test('a sender that falls silent does not keep a cancelled import, nor the store from closing', async () => {
    let wake = () => {};
    async function* silent() {
      yield ROOTFS.subarray(0, 600);
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    const store = await scratchStore();
    const abort = new AbortController();
    const cancelled = failureOf(store.importArchive(silent(), 'a', { signal: abort.signal }));
    setTimeout(() => abort.abort(), 50);
    expect(await cancelled).toMatchObject({ code: 'aborted' });
    const closed = failureOf(store.importArchive(silent(), 'a'));
    await store.close();
    expect(await closed).toMatchObject({ code: 'aborted' });
    wake();
  });

  test('a missing blob, a wrong digest, a wrong diff id, a strange layer', async () => {
    const layout = await newLayout();
    const tar = buildTar([{ name: 'x', content: 'y' }]);
    await layout.addImage({ layers: [{ tar, diffId: `sha256:${'0'.repeat(64)}` }], tag: 'diff' });
    await layout.addImage({ layers: [{ tar: Buffer.from('no tar'.repeat(200)) }], tag: 'strange' });
    await layout.addImage({
      layers: [{ tar: ROOTFS, mediaType: 'application/vnd.wasm.module' }],
      tag: 'wasm',
    });
    const damaged = await layout.addImage({ layers: [{ tar: ROOTFS }], tag: 'damaged' });
    const store = await scratchStore();
    await store.importFolder(layout.folder, 'a:diff');
    expect(await failureOf(store.acquire('a:diff', 'h'))).toMatchObject({ code: 'digest-mismatch' });
    await store.importFolder(layout.folder, 'a:strange');
    expect(await failureOf(store.acquire('a:strange', 'h'))).toMatchObject({ code: 'unknown-compression' });
    expect(await failureOf(store.importFolder(layout.folder, 'a:wasm'))).toMatchObject({
      code: 'unsupported-media-type',
    });
    const { layers } = JSON.parse(await readFile(layout.blobPath(damaged.digest), 'utf8'));
    await writeFile(layout.blobPath(layers[0].digest), Buffer.alloc(layers[0].size));
    expect(await failureOf(store.importFolder(layout.folder, 'a:damaged'))).toMatchObject({
      code: 'digest-mismatch',
    });
    await writeFile(layout.blobPath(layers[0].digest), 'short');
    expect(await failureOf(store.importFolder(layout.folder, 'a:damaged'))).toMatchObject({
      code: 'truncated',
    });
    expect(await failureOf(store.importFolder('/nowhere', 'a'))).toMatchObject({ code: 'not-found' });
    expect(await failureOf(store.importFolder(layout.folder, 'a:unlisted'))).toMatchObject({
      code: 'not-found',
    });
  });
});
