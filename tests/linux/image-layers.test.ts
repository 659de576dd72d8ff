/** What layers make together, as a command in the machine sees it: whiteouts, links, strange packings, choice of manifest. */
import { createHash } from 'node:crypto';
import type { FixtureDescriptor, LayerFixture } from '@sandlot/images/testing/layout-fixture';
import { buildTar, type FixtureEntry, opaque, whiteout } from '@sandlot/images/testing/tar-fixture';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { busyboxEntries, layeredArchive, layoutArchive } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

let node: TestNode;
let images = 0;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
});
afterAll(() => node?.close());

const shell: LayerFixture = { tar: buildTar(busyboxEntries()), compression: 'gzip' };
const layer = (...entries: FixtureEntry[]): LayerFixture => ({ tar: buildTar(entries), compression: 'gzip' });
const file = (name: string, content: string): FixtureEntry => ({ name, content });
const link = (name: string, linkName: string): FixtureEntry => ({ name, type: 'symlink', linkName });
const hard = (name: string, linkName: string): FixtureEntry => ({ name, type: 'hardlink', linkName });

/** A sandbox of what is in the archive. */
async function sandboxOf(archive: Buffer): Promise<TestSandbox> {
  const name = `layers:${images++}`;
  await node.importArchive(archive, name);
  return node.create({ image: name });
}

describe('layers', () => {
  it('whiteouts, opaque ones, and changes of type', async () => {
    const sandbox = await sandboxOf(
      await layeredArchive([
        shell,
        layer(
          ...['gone', 'kept', 'again'].map((name) => file(`d/${name}`, 'lower')),
          ...['a', 'b/c/d'].map((name) => file(`o/${name}`, 'lower')),
          file('tree/x/y', 'lower'),
          file('was-dir/in', 'lower'),
          file('was-file', 'lower'),
          link('was-link', 'd'),
        ),
        layer(
          whiteout('d/gone'),
          whiteout('d/again'),
          file('d/again', 'upper'),
          whiteout('tree'),
          // The mark stands after what it must not hide.
          file('o/new', 'upper'),
          opaque('o'),
          file('was-dir', 'upper'),
          { name: 'was-file', type: 'dir' },
          file('was-file/in', 'upper'),
          whiteout('was-link'),
        ),
        layer(file('o/b', 'third'), whiteout('nothing/there')),
      ]),
    );
    const list = await sandbox.out('cd / && find d o tree was-dir was-file was-link 2>/dev/null | sort');
    expect(list.split('\n')).toEqual(
      ['d', 'd/again', 'd/kept', 'o', 'o/b', 'o/new', 'was-dir', 'was-file', 'was-file/in'].sort(),
    );
    expect(await sandbox.out('cat /d/again /o/b /was-dir /was-file/in')).toBe('upperthirdupperupper');
    await sandbox.delete();
  });

  it('a hard link of an upper layer replaces what is there, and follows its target', async () => {
    const sandbox = await sandboxOf(
      await layeredArchive([
        shell,
        layer(file('usr/bin/one', 'one'), file('usr/bin/two', 'two'), file('usr/bin/three', 'three')),
        // Its target is of the lower layer, its own place is taken; then one whose target is new in this layer.
        layer(
          hard('usr/bin/two', 'usr/bin/one'),
          file('usr/bin/three', 'new'),
          hard('usr/bin/four', 'usr/bin/three'),
        ),
        // A file written anew under one name leaves the other as it was.
        layer(file('usr/bin/one', 'newest')),
      ]),
    );
    expect(await sandbox.out('cd /usr/bin && cat one two three four')).toBe('newestonenewnew');
    expect(await sandbox.out('cd /usr/bin && stat -c %h one two three four')).toBe('1\n1\n2\n2');
    const inodes = (await sandbox.out('cd /usr/bin && stat -c %i three four')).split('\n');
    expect(inodes[0]).toBe(inodes[1]);
    await sandbox.out('echo -n more >> /usr/bin/four');
    expect(await sandbox.out('cat /usr/bin/three')).toBe('newmore');
    await sandbox.delete();
  });

  it('parents that are links are followed inside the image, absolute ones too', async () => {
    const sandbox = await sandboxOf(
      await layeredArchive([
        shell,
        layer({ name: 'run', type: 'dir' }, { name: 'usr/lib', type: 'dir' }, link('lib', 'usr/lib')),
        layer({ name: 'var', type: 'dir' }, link('var/cache', '/srv/cache'), {
          name: 'srv/cache',
          type: 'dir',
        }),
        layer(file('var/cache/a', 'cached'), file('lib/library', 'lib'), whiteout('var/cache/none')),
      ]),
    );
    expect(await sandbox.out('cat /srv/cache/a /usr/lib/library; readlink /var/cache; readlink /lib')).toBe(
      'cachedlib/srv/cache\nusr/lib',
    );
    await sandbox.delete();
  });

  it('layers of one file whose parents no layer has, and a root folder of its own mode', async () => {
    const sandbox = await sandboxOf(
      await layeredArchive([
        shell,
        layer({ name: './', type: 'dir', mode: 0o711, uid: 7, gid: 8 }),
        layer(file('./a/b/c/d', 'deep')),
      ]),
    );
    expect(await sandbox.out("cat /a/b/c/d; stat -c ' %a %u:%g' / /a/b")).toBe('deep 711 7:8\n 755 0:0');
    expect(await sandbox.out('id -u; ls -d /proc/1', { user: '1000:1000' })).toBe('1000\n/proc/1');
    await sandbox.delete();
  });
});

describe('packings', () => {
  const gzipOfDocker = 'application/vnd.docker.image.rootfs.diff.tar.gzip';

  it('zstd, plain and gzip under a media type that says otherwise', async () => {
    const layers: LayerFixture[] = [
      { ...shell, compression: 'zstd', mediaType: gzipOfDocker },
      { tar: buildTar([file('plain', 'plain')]), compression: 'plain', mediaType: gzipOfDocker },
      {
        tar: buildTar([file('gzip', 'gzip')]),
        compression: 'gzip',
        mediaType: 'application/vnd.oci.image.layer.v1.tar+zstd',
      },
      {
        tar: buildTar([file('zstd', 'zstd')]),
        compression: 'zstd',
        mediaType: 'application/vnd.oci.image.layer.v1.tar',
      },
    ];
    const sandbox = await sandboxOf(await layeredArchive(layers, { isDocker: true }));
    expect(await sandbox.out('cat /plain /gzip /zstd')).toBe('plaingzipzstd');
    await sandbox.delete();
  });

  it('an archive of docker save, with whiteouts', async () => {
    const layers = [
      buildTar(busyboxEntries()),
      buildTar([file('d/old', 'x'), file('d/kept', 'x'), file('o/old', 'x')]),
      buildTar([whiteout('d/old'), opaque('o'), file('o/new', 'x')]),
    ];
    const config = JSON.stringify({
      os: 'linux',
      architecture: 'amd64',
      config: { Env: ['PATH=/bin', 'SAVED=yes'] },
      rootfs: {
        type: 'layers',
        diff_ids: layers.map((tar) => `sha256:${createHash('sha256').update(tar).digest('hex')}`),
      },
    });
    const manifest = [
      { Config: 'c.json', RepoTags: ['saved:1'], Layers: layers.map((_, n) => `${n}/layer.tar`) },
    ];
    const sandbox = await sandboxOf(
      buildTar([
        ...layers.map((tar, n) => ({ name: `${n}/layer.tar`, content: tar })),
        file('c.json', config),
        file('manifest.json', JSON.stringify(manifest)),
      ]),
    );
    expect(await sandbox.out('find /d /o -type f; echo $SAVED')).toBe('/d/kept\n/o/new\nyes');
    await sandbox.delete();
  });
});

describe('the choice of a manifest', () => {
  const other = { os: 'linux', architecture: 's390x' };
  /** BuildKit's attestation: a manifest that is no image, of a platform that does not exist. */
  const attestation = (descriptor: FixtureDescriptor): FixtureDescriptor => ({
    ...descriptor,
    platform: { os: 'unknown', architecture: 'unknown' },
    annotations: { 'vnd.docker.reference.type': 'attestation-manifest' },
  });

  it('ours is found in an index within an index, beside attestations and other platforms', async () => {
    const sandbox = await sandboxOf(
      await layoutArchive(async (layout) => {
        const ours = await layout.storeImage({ layers: [shell, layer(file('which', 'ours'))] });
        const theirs = await layout.storeImage({ layers: [layer(file('which', 'theirs'))], platform: other });
        const proof = await layout.storeImage({ layers: [layer(file('proof', 'in-toto'))] });
        const inner = await layout.storeIndex([attestation(proof), theirs, ours]);
        await layout.list(await layout.storeIndex([attestation(proof), inner]), 'latest');
      }),
    );
    expect(await sandbox.out('cat /which')).toBe('ours');
    await sandbox.delete();
  });

  it('an index without ours is refused before any layer is read, with the platforms that it has', async () => {
    const archive = await layoutArchive(async (layout) => {
      const theirs = await layout.storeImage({ layers: [layer(file('which', 'theirs'))], platform: other });
      const arm = await layout.storeImage({
        layers: [layer(file('which', 'arm'))],
        platform: { os: 'linux', architecture: 'arm64', variant: 'v8' },
      });
      await layout.list(await layout.storeIndex([attestation(arm), theirs, arm]), 'latest');
    });
    const failure = await node.importArchive(archive, 'foreign:1').catch((error: Error) => error.message);
    expect(failure).toMatch(/no image for linux\/amd64.*linux\/s390x.*linux\/arm64\/v8/);
    expect(failure).not.toContain('unknown');
  });
});
