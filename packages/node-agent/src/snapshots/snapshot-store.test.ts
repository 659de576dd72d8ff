/** Snapshots stay as long as anybody needs them, and no longer. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
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
  writeFileSync(join(await store.makeFolder(id), 'memory'), 'x');
  return id;
}

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

it('each has a group of its own, where machines have identities', () => {
  const [one, two] = [store.newId(), store.newId()];
  expect(store.groupOf(one)).not.toBe(store.groupOf(two));
  expect(store.groupOf('fffffffabcdef012')).toBeLessThan(2 ** 31);
  expect(new SnapshotStore(root, false).groupOf(one)).toBeUndefined();
});
