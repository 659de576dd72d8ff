/** Chains are merged in the background, whatever happens to their owners meanwhile; files are there as long as anybody reads them. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createFakeDriver, type FakeStep } from '@sandlot/vmm';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { NodeMetrics } from '../metrics.js';
import { ReportHub } from '../sandbox/report-hub.js';
import { type Chain, ChainMerger } from './chain-merger.js';
import { Checksums } from './checksums.js';
import { chainLimits, withMerged } from './merge-plan.js';
import { SnapshotStore } from './snapshot-store.js';

const never = new AbortController().signal;

let root: string;
let store: SnapshotStore;
let merger: ChainMerger;
let checksums: Checksums;
let chains: TestChain[];
let intercept: (step: FakeStep) => void | Promise<void>;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-merger-'));
  store = new SnapshotStore(join(root, 'snapshots'), false);
  await store.open();
  chains = [];
  checksums = new Checksums();
  intercept = () => undefined;
  const driver = createFakeDriver({ agentBinary: 'none', intercept: (step) => intercept(step) });
  merger = new ChainMerger({
    driver,
    snapshots: store,
    checksums,
    chains: () => chains,
    log: pino({ level: process.env['LOGL'] ?? 'silent' }),
  });
});
afterEach(async () => {
  await merger.close();
  rmSync(root, { recursive: true, force: true });
});

/** A sandbox as far as its disk goes. */
class TestChain implements Chain {
  layers: string[] = [];
  isBusy = false;
  asked = 0;

  constructor(readonly id: string) {
    chains.push(this);
  }

  async replaceLayers(run: readonly string[], merged: string): Promise<boolean> {
    this.asked++;
    if (this.isBusy) return false;
    this.layers = withMerged(this.layers, run, merged) ?? this.layers;
    await this.sayNeeds();
    return true;
  }

  sayNeeds(): Promise<void> {
    return store.need(this.id, { whole: [], disks: this.layers });
  }

  async save(words = 'x'): Promise<string> {
    const id = store.newId();
    this.layers = [...this.layers, id];
    await this.sayNeeds();
    await store.makeFolder(id);
    writeFileSync(store.diskOf(id), words);
    return id;
  }

  async delete(): Promise<void> {
    chains = chains.filter((chain) => chain !== this);
    await store.need(this.id, []);
  }

  /** What its disk holds. */
  get words(): string {
    return this.layers.map((id) => readFileSync(store.diskOf(id), 'utf8')).join('');
  }
}

const folders = () => readdirSync(store.root).sort();

async function grow(chain: TestChain, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await chain.save(`${chain.layers.length},`);
}

it('merges where there are many layers; their files go with the last reader', async () => {
  const chain = new TestChain('a');
  await grow(chain, chainLimits.mergeAt - 1);
  merger.look();
  const keptLayer = chain.layers[2] as string;
  await store.need('a checkpoint', { whole: [], disks: [keptLayer] });
  await chain.save('last');
  const words = chain.words;
  merger.look();
  await expect.poll(() => chain.layers.length).toBe(1);
  expect(chain.words).toBe(words);
  await expect.poll(folders).toEqual([...chain.layers, keptLayer].sort());
  await store.need('a checkpoint', []);
  expect(folders()).toEqual(chain.layers);
  // And it is told.
  const { list, hub } = { list: () => [], hub: new ReportHub() };
  const text = await new NodeMetrics({ list, hub }, merger).text();
  expect(text).toMatch(/^sandlot_layer_merges_total\{result="done"\} 1$/m);
  expect(text).toMatch(/^sandlot_layer_merges_total\{result="failed"\} 0$/m);
  expect(text).toContain(`\nsandlot_layer_merge_bytes_total ${words.length}\n`);
  expect(Number(/^sandlot_layer_merge_seconds_total (\S+)$/m.exec(text)?.[1])).toBeGreaterThan(0);
});

it('200 saves one after the other never make it deep', async () => {
  const chain = new TestChain('a');
  let words = '';
  for (let turn = 0; turn < 200; turn++) {
    await merger.room(chain, never);
    expect(chain.layers.length).toBeLessThan(chainLimits.cap);
    await chain.save(`${turn},`);
    words += `${turn},`;
    merger.look();
  }
  await expect.poll(() => chain.layers.length).toBeLessThan(chainLimits.mergeAt);
  expect(chain.words).toBe(words);
  await expect.poll(() => folders().length).toBe(chain.layers.length);
});

it('what others stand above too is merged once, for all of them', async () => {
  const source = new TestChain('source');
  await grow(source, chainLimits.mergeAt);
  const copies = [new TestChain('one'), new TestChain('two')];
  for (const copy of copies) {
    copy.layers = [...source.layers];
    await copy.save(copy.id);
  }
  const busy = new TestChain('busy');
  busy.layers = [...source.layers];
  busy.isBusy = true;
  await busy.sayNeeds();
  let merges = 0;
  intercept = ({ operation, phase }) => void (operation === 'mergeLayers' && phase === 'before' && merges++);
  merger.look();
  await expect.poll(() => source.layers.length).toBe(1);
  await expect
    .poll(() => copies.map(({ layers }) => layers[0]))
    .toEqual([source.layers[0], source.layers[0]]);
  expect(busy.layers).toHaveLength(chainLimits.mergeAt);
  busy.isBusy = false;
  await expect.poll(() => busy.layers).toEqual(source.layers);
  for (const copy of copies) expect(copy.words).toBe(`${source.words}${copy.id}`);
  expect(merges).toBe(1);
});

it('what checkpoints have checked is checked again, and the merged layer with it; a damaged layer is not merged', async () => {
  const chain = new TestChain('a');
  await grow(chain, chainLimits.mergeAt - 1);
  const [first] = chain.layers as [string];
  await checksums.settle(store.folderOf(first), never);
  await chain.save();
  merger.look();
  await expect.poll(() => chain.layers.length).toBe(1);
  await checksums.verify(store.folderOf(chain.layers[0] as string), 'disk', never);
  const other = new TestChain('b');
  await grow(other, chainLimits.mergeAt - 1);
  await checksums.settle(store.folderOf(other.layers[0] as string), never);
  writeFileSync(store.diskOf(other.layers[0] as string), 'something else');
  let merges = 0;
  intercept = ({ operation }) => void (operation === 'mergeLayers' && merges++);
  while (other.layers.length < chainLimits.cap) await other.save();
  await merger.room(other, never);
  expect(other.layers).toHaveLength(chainLimits.cap);
  expect(merges).toBe(0);
});

it('a save at the cap waits for the merge, not longer, and is never refused', async () => {
  const chain = new TestChain('a');
  await grow(chain, chainLimits.cap - 1);
  await merger.room(chain, never);
  await chain.save();
  const waited = merger.room(chain, never);
  let go = () => {};
  intercept = ({ operation, phase }) =>
    operation === 'mergeLayers' && phase === 'before'
      ? new Promise<void>((resolve) => {
          go = resolve;
        })
      : undefined;
  expect(
    await Promise.race([waited.then(() => 'done'), new Promise((r) => setTimeout(r, 100, 'waits'))]),
  ).toBe('waits');
  go();
  await waited;
  expect(chain.layers.length).toBeLessThan(chainLimits.cap);
  // One that cannot be merged gets longer.
  intercept = ({ operation }) => {
    if (operation === 'mergeLayers') throw new Error('the test says no');
  };
  while (chain.layers.length < chainLimits.cap) await chain.save();
  await merger.room(chain, never);
  expect(chain.layers).toHaveLength(chainLimits.cap);
  expect(merger.counts.failed).toBeGreaterThan(0);
  await chain.save();
  await merger.room(chain, never);
  const abort = new AbortController();
  abort.abort(new Error('deleted'));
  await expect(merger.room(chain, abort.signal)).rejects.toThrow('deleted');
  expect(folders()).toHaveLength(chain.layers.length);
});

it('one that is deleted, or saved, meanwhile: nothing is left, and the save is above what was merged', async () => {
  const chain = new TestChain('a');
  const gone = new TestChain('b');
  await grow(chain, chainLimits.mergeAt);
  await grow(gone, chainLimits.mergeAt + 1);
  intercept = async ({ operation, phase, call }) => {
    if (operation !== 'mergeLayers') return;
    if (phase === 'before' && call === 1) await gone.delete();
    if (phase === 'before' && call === 2) await chain.save('meanwhile');
  };
  merger.look();
  await expect.poll(() => chain.layers.length).toBe(2);
  expect(chain.words).toBe('0,1,2,3,4,5,6,7,meanwhile');
  await expect.poll(folders).toEqual([...chain.layers].sort());
});

it('a stop of the node agent cuts it off, and what is half made goes with the next start', async () => {
  const chain = new TestChain('a');
  await grow(chain, chainLimits.mergeAt);
  const words = chain.words;
  let reached = () => {};
  const inMerge = new Promise<void>((resolve) => {
    reached = resolve;
  });
  intercept = ({ operation, phase }) => void (operation === 'mergeLayers' && phase === 'before' && reached());
  merger.look();
  await inMerge;
  await merger.close();
  expect(chain.words).toBe(words);
  const again = new SnapshotStore(store.root, false);
  await again.need('a', { whole: [], disks: chain.layers });
  await again.reap();
  expect(folders()).toEqual([...chain.layers].sort());
});
