/** The OCI rules for layers, one by one. What they give together is compared with umoci elsewhere. */
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../limits.js';
import { TarReader } from '../tar/tar-reader.js';
import { buildTar, type FixtureEntry, opaque, whiteout } from '../testing/tar-fixture.js';
import { applyEntry } from './apply-entry.js';
import { type DirNode, ImageTree, type TreeNode } from './tree.js';

function merge(...layers: FixtureEntry[][]): ImageTree {
  const tree = new ImageTree();
  const totals = { entries: 0, bytes: 0 };
  for (const [index, entries] of layers.entries()) {
    const reader = new TarReader(DEFAULT_LIMITS, (entry) =>
      applyEntry(tree, entry, index, totals, DEFAULT_LIMITS),
    );
    reader.write(buildTar(entries));
    reader.finish();
    tree.endLayer();
  }
  return tree;
}

function paths(tree: ImageTree): string[] {
  const walk = (dir: DirNode, prefix: string): string[] =>
    [...dir.children].flatMap(([name, node]) => [
      prefix + name,
      ...(node.kind === 'dir' ? walk(node, `${prefix}${name}/`) : []),
    ]);
  return walk(tree.root, '').sort();
}

function nodeAt(tree: ImageTree, path: string): TreeNode | undefined {
  let node: TreeNode | undefined = tree.root;
  for (const part of path.split('/')) node = node?.kind === 'dir' ? node.children.get(part) : undefined;
  return node;
}

const dir = (name: string): FixtureEntry => ({ name, type: 'dir' });
const file = (name: string, content = ''): FixtureEntry => ({ name, content });
const link = (name: string, linkName: string): FixtureEntry => ({ name, type: 'symlink', linkName });
const hard = (name: string, linkName: string): FixtureEntry => ({ name, type: 'hardlink', linkName });
const invalid = expect.objectContaining({ code: 'invalid-layer' });

describe('whiteouts', () => {
  const lower = [dir('d'), file('d/a'), file('d/b'), dir('d/sub'), file('d/sub/c'), file('top')];

  test('remove files and whole directories of lower layers', () => {
    expect(paths(merge(lower, [whiteout('d/a'), whiteout('d/sub'), whiteout('top')]))).toEqual(['d', 'd/b']);
  });

  test('do not remove what their own layer wrote, before or after them', () => {
    expect(paths(merge(lower, [file('d/a', 'new'), whiteout('d/a')]))).toContain('d/a');
    expect(paths(merge(lower, [whiteout('d/a'), file('d/a', 'new')]))).toContain('d/a');
    const kept = merge(lower, [file('d/sub/new'), whiteout('d/sub')]);
    expect(paths(kept)).toEqual(['d', 'd/a', 'd/b', 'd/sub', 'd/sub/new', 'top']);
  });

  test('opaque hides lower content wherever it stands in the layer', () => {
    const expected = ['d', 'd/new', 'top'];
    expect(paths(merge(lower, [opaque('d'), file('d/new')]))).toEqual(expected);
    expect(paths(merge(lower, [file('d/new'), opaque('d')]))).toEqual(expected);
    expect(paths(merge(lower, [dir('d'), file('d/new'), opaque('d')]))).toEqual(expected);
  });

  test('of missing files and in missing directories change nothing', () => {
    expect(paths(merge(lower, [whiteout('nothing'), whiteout('no/such/file'), opaque('no/dir')]))).toEqual(
      paths(merge(lower)),
    );
  });

  test('act behind a symbolic link, and remove the link itself', () => {
    expect(paths(merge([...lower, link('l', 'd')], [whiteout('l/a')]))).not.toContain('d/a');
    expect(paths(merge([...lower, link('l', 'd')], [whiteout('l')]))).toEqual(paths(merge(lower)));
  });

  test('of a hard link leave the other name', () => {
    const tree = merge([file('a', 'x'), hard('b', 'a')], [whiteout('a')]);
    expect(paths(tree)).toEqual(['b']);
    expect(nodeAt(tree, 'b')).toMatchObject({ kind: 'file', size: 1 });
  });

  test.each(['.wh.', '.wh..', '.wh...', 'd/.wh...'])('%s is refused', (name) => {
    expect(() => merge(lower, [file(name)])).toThrow(invalid);
  });

  test('files of aufs are no content', () => {
    expect(
      paths(merge([dir('.wh..wh.plnk'), file('.wh..wh.plnk/1.2'), file('.wh..wh.aufs'), file('a')])),
    ).toEqual(['a']);
  });
});

describe('types and links', () => {
  test('every type replaces every other', () => {
    const kinds: FixtureEntry[] = [
      file('x', 'f'),
      dir('x'),
      link('x', 'other'),
      { name: 'x', type: 'fifo' },
      { name: 'x', type: 'char', deviceMajor: 1, deviceMinor: 3 },
    ];
    for (const first of kinds) {
      for (const second of kinds) {
        const tree = merge([first, ...(first.type === 'dir' ? [file('x/in')] : [])], [second]);
        expect(nodeAt(tree, 'x')!.kind).toBe(second.type ?? 'file');
        if (first.type === 'dir' && second.type !== 'dir') expect(paths(tree)).toEqual(['x']);
      }
    }
  });

  test('a directory over a directory keeps the files and takes the new metadata', () => {
    const tree = merge(
      [{ ...dir('d'), xattrs: { 'user.a': 'b' } }, file('d/f')],
      [{ ...dir('d'), mode: 0o700, uid: 7 }],
    );
    expect(nodeAt(tree, 'd')).toMatchObject({ mode: 0o700, uid: 7, xattrs: undefined });
    expect(nodeAt(tree, 'd/f')).toBeDefined();
  });

  test('a hard link of an upper layer replaces what is there', () => {
    const tree = merge([file('a', 'one'), file('b', 'other')], [hard('b', 'a')]);
    expect(nodeAt(tree, 'b')).toBe(nodeAt(tree, 'a'));
  });

  test('writing to one name of a hard link leaves the other as it was', () => {
    const tree = merge([file('a', 'old'), hard('b', 'a')], [file('a', 'newer')]);
    expect(nodeAt(tree, 'a')).toMatchObject({ size: 5 });
    expect(nodeAt(tree, 'b')).toMatchObject({ size: 3 });
  });

  test('a hard link to itself is what an archive with one file twice has', () => {
    expect(nodeAt(merge([file('a', 'x'), hard('a', './a')]), 'a')).toMatchObject({ size: 1 });
  });

  test.each([
    ['nothing', [hard('b', 'missing')]],
    ['a directory', [dir('d'), hard('b', 'd')]],
    ['what it replaces', [dir('c'), file('c/x'), hard('c', 'c/x')]],
  ])('a hard link to %s is refused', (_name, entries) => {
    expect(() => merge(entries)).toThrow(invalid);
  });

  test('setuid and special bits stay', () => {
    expect(nodeAt(merge([{ ...file('sudo'), mode: 0o4755 }]), 'sudo')).toMatchObject({ mode: 0o4755 });
  });
});

describe('paths never leave the image', () => {
  test('parents that are links lead to where they would inside the image', () => {
    const tree = merge(
      [
        dir('usr'),
        dir('usr/lib'),
        link('lib', 'usr/lib'),
        link('abs', '/usr/lib'),
        link('up', '../../../usr'),
      ],
      [file('lib/a'), file('abs/b'), file('up/lib/c'), file('../../usr/d'), file('/usr/e')],
    );
    expect(paths(tree)).toEqual([
      ...['abs', 'lib', 'up', 'usr', 'usr/d', 'usr/e'],
      ...['usr/lib', 'usr/lib/a', 'usr/lib/b', 'usr/lib/c'],
    ]);
  });

  test('a dangling link to a host path makes that path inside the image', () => {
    const tree = merge([link('x', '/etc/cron.d')], [file('x/job', 'evil')]);
    expect(nodeAt(tree, 'etc/cron.d/job')).toMatchObject({ kind: 'file' });
  });

  test('a loop of links is refused', () => {
    expect(() => merge([link('a', 'b'), link('b', 'a'), file('a/f')])).toThrow(invalid);
    expect(() => merge([link('a', 'a/x'), file('a/f')])).toThrow(invalid);
  });

  test('a file cannot be a parent, nor the root anything but a directory', () => {
    expect(() => merge([file('a'), file('a/b')])).toThrow(invalid);
    expect(() => merge([file('/')])).toThrow(invalid);
    expect(() => merge([link('.', 'x')])).toThrow(invalid);
  });

  test('the root takes its metadata from the layer', () => {
    expect(merge([{ name: './', type: 'dir', mode: 0o711, uid: 5 }]).root).toMatchObject({
      mode: 0o711,
      uid: 5,
    });
  });

  test('implied parents are made', () => {
    expect(nodeAt(merge([file('a/b/c')]), 'a/b')).toMatchObject({ kind: 'dir', mode: 0o755, uid: 0 });
  });

  test.each([
    ['a name of 256 bytes', file('n'.repeat(256))],
    ['a path of 4,100 bytes', file('d/'.repeat(2050))],
    ['an empty link', link('l', '')],
  ])('%s is refused', (_name, entry) => {
    expect(() => merge([entry])).toThrow(invalid);
  });

  test('deep trees behind links are refused before they overflow anything', () => {
    const layers = Array.from({ length: 4 }, (_, i) => [
      ...Array.from({ length: 500 }, (_, j) => dir(`${i === 0 ? '' : `l${i - 1}/`}${'d/'.repeat(j + 1)}`)),
      link(`l${i}`, `${i === 0 ? '' : `l${i - 1}/`}${'d/'.repeat(500)}`),
    ]);
    expect(() => merge(...layers, [file('l3/'.concat('e/'.repeat(600), 'f'))])).toThrow(invalid);
  });
});
