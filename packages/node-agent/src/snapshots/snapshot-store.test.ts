/** Snapshots stay as long as anybody needs them, and no longer. */
import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { SnapshotStore } from './snapshot-store.js';

let root: string;
let store: SnapshotStore;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-snapshots-'));
  store = new SnapshotStore(join(root, 'snapshots'), true);
  await store.open();
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const names = () => readdirSync(store.root).sort();

async function make(holder: string): Promise<string> {
  const id = store.newId();
  await store.need(holder, [id]);
  const folder = await store.makeFolder(id);
  for (const file of ['memory', 'state', 'snapshot.json', 'disk.qcow2'])
    writeFileSync(join(folder, file), Buffer.alloc(8192, 1));
  return id;
}

const filesOf = (id: string) => readdirSync(store.folderOf(id)).sort();
const blockBytes = () => statSync(join(store.folderOf(names()[0] as string), 'disk.qcow2')).blocks * 512;

it('goes with the last that needs it', async () => {
  const id = await make('a');
  await store.need('b', [id]);
  await store.need('a', []);
  expect(names()).toEqual([id]);
  await store.need('b', []);
  expect(names()).toEqual([]);
});

it('one that is replaced goes, those below it stay', async () => {
  const first = await make('a');
  const second = store.newId();
  await store.need('a', [first, second]);
  await store.makeFolder(second);
  await store.need('a', [second]);
  expect(names()).toEqual([second]);
});

it('what nobody has said to need after a restart is removed, whatever it is', async () => {
  const id = await make('a');
  const again = new SnapshotStore(store.root, true);
  mkdirSync(join(store.root, store.newId()));
  mkdirSync(join(store.root, 'half made'));
  await again.need('a', [id]);
  await again.reap();
  expect(names()).toEqual([id]);
  expect(await again.read(id)).toBeUndefined();
});

it('one that is only a layer any more keeps its disk alone', async () => {
  const id = await make('a');
  await store.need('b', { whole: [], disks: [id] });
  expect(filesOf(id)).toHaveLength(4);
  writeFileSync(join(store.folderOf(id), 'checksums.json.tmp'), 'being made');
  await store.need('a', []);
  renameSync(join(store.folderOf(id), 'checksums.json.tmp'), join(store.folderOf(id), 'checksums.json'));
  expect(filesOf(id)).toEqual(['checksums.json', 'disk.qcow2']);
  const again = new SnapshotStore(store.root, true);
  await again.need('b', { whole: [], disks: [id] });
  writeFileSync(join(store.folderOf(id), 'memory'), 'of a removal that was cut off');
  await again.reap();
  expect(filesOf(id)).toEqual(['checksums.json', 'disk.qcow2']);
  await again.need('b', []);
  expect(names()).toEqual([]);
});

it('tells what goes with a holder, and what others need too', async () => {
  const first = await make('a');
  const each = blockBytes();
  expect(await store.bytesNeededBy('a')).toEqual({ ownBytes: 4 * each, sharedBytes: 0 });
  await store.need('b', { whole: [], disks: [first] });
  // Memory and all are still of the first alone.
  expect(await store.bytesNeededBy('a')).toEqual({ ownBytes: 3 * each, sharedBytes: each });
  expect(await store.bytesNeededBy('b')).toEqual({ ownBytes: 0, sharedBytes: each });
  await store.need('a', []);
  expect(await store.bytesNeededBy('b')).toEqual({ ownBytes: each, sharedBytes: 0 });
  expect(await store.bytesNeededBy('a')).toEqual({ ownBytes: 0, sharedBytes: 0 });
});

it('counts memory without the disk, and a file with two names once', async () => {
  const first = await make('a');
  const each = blockBytes();
  expect(await store.memoryBytes(first)).toBe(3 * each);
  linkSync(join(store.folderOf(first), 'memory'), join(store.folderOf(first), 'again'));
  expect(await store.memoryBytes(first)).toBe(3 * each);
  const seen = new Set<string>();
  await store.memoryBytes(first, seen);
  expect(await store.memoryBytes(first, seen)).toBe(0);
});

it('each has a group of its own, where machines have identities', () => {
  const [one, two] = [store.newId(), store.newId()];
  expect(store.groupOf(one)).not.toBe(store.groupOf(two));
  expect(store.groupOf('fffffffabcdef012')).toBeLessThan(2 ** 31);
  expect(new SnapshotStore(root, false).groupOf(one)).toBeUndefined();
});
