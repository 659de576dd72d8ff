/** The store in a process of its own: it answers like one here, its end loses nothing, and it does not outlive its owner. */
import { spawn } from 'node:child_process';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
// What was built: the process runs from there.
import { type ImageStore, openStoreProcess, type StoreProgress } from '@sandlot/images';
import { describe, expect, test, vi } from 'vitest';
import { LayoutFixture } from '../src/testing/layout-fixture.js';
import { buildTar } from '../src/testing/tar-fixture.js';
import { type RegistryFault, TestRegistry } from '../src/testing/test-registry.js';
import { afterThisTest, failureOf, scratchFolder, streamOf } from './scratch.js';

const ROOTFS = buildTar([{ name: 'hello', content: 'x'.repeat(300_000) }]);
const REPOSITORY = 'some/image';

interface Opened {
  store: ImageStore;
  root: string;
  /** How its processes ended by themselves. */
  ends: string[];
}

async function open(): Promise<Opened> {
  const root = join(await scratchFolder(), 'store');
  const ends: string[] = [];
  const store = await openStoreProcess({ root }, (how) => ends.push(how));
  afterThisTest(() => store.close());
  return { store, root, ends };
}

/** The process that has the store's lock. */
async function pidOf(root: string): Promise<number> {
  return Number((await readFile(join(root, 'lock'), 'utf8')).split(' ')[0]);
}

/** Whether it runs; one that nobody has reaped yet does not. */
async function isRunning(pid: number): Promise<boolean> {
  return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')) !== '';
}

async function registryWith(fault?: (path: string) => RegistryFault | undefined) {
  const layout = await LayoutFixture.create(join(await scratchFolder(), 'layout'));
  await layout.addImage({ layers: [{ tar: ROOTFS, compression: 'gzip' }], config: { Cmd: ['run'] } });
  const registry = await TestRegistry.start({
    repositories: { [REPOSITORY]: layout.folder },
    ...(fault ? { fault } : {}),
  });
  afterThisTest(() => registry.close());
  return { registry, reference: `${registry.host}/${REPOSITORY}:latest` };
}

/** The first request for a blob gets no answer. */
function hangOnce(): (path: string) => RegistryFault | undefined {
  let hasHung = false;
  return (path) => {
    if (hasHung || !path.includes('/blobs/')) return undefined;
    hasHung = true;
    return { kind: 'hang' };
  };
}

describe('as if it were here', () => {
  test('a pull, a hold, what is listed, and what is refused', async () => {
    const { store } = await open();
    const { reference } = await registryWith();
    const stages: string[] = [];
    const hold = await store.acquire(reference, 'holder', {
      onProgress: ({ stage }: StoreProgress) => stages.push(stage),
    });
    expect(hold.image.config.cmd).toEqual(['run']);
    expect((await stat(hold.path)).blocks * 512).toBeGreaterThan(300_000);
    expect(stages).toEqual(expect.arrayContaining(['resolve', 'download', 'build']));
    expect(await store.holders()).toEqual(['holder']);
    expect(await store.list()).toMatchObject([{ reference, holders: 1 }]);
    expect(await store.get('no/such:image')).toBeUndefined();
    expect(await failureOf(store.remove(reference))).toMatchObject({
      code: 'in-use',
      message: expect.stringContaining('is used by 1 sandbox'),
      stack: expect.stringContaining('open-image-store'),
    });
    await store.release('holder');
    await store.remove(reference);
    expect(await store.list()).toEqual([]);
  });

  test('an archive in pieces, one that breaks off, and one whose sender gives up', async () => {
    const { store, root } = await open();
    expect(await store.importArchive(streamOf(ROOTFS), 'a:1')).toMatchObject({
      reference: 'docker.io/library/a:1',
    });
    async function* broken() {
      yield ROOTFS.subarray(0, 70_000);
      throw new Error('the client went away');
    }
    expect(await failureOf(store.importArchive(broken(), 'b:1'))).toMatchObject({
      message: expect.stringContaining('the client went away'),
    });
    const abort = new AbortController();
    async function* stalled() {
      yield ROOTFS.subarray(0, 70_000);
      abort.abort();
      await new Promise(() => undefined);
    }
    const stopped = store.importArchive(stalled(), 'c:1', { signal: abort.signal });
    expect(await failureOf(stopped)).toMatchObject({ code: 'aborted' });
    expect((await store.list()).map(({ reference }) => reference)).toEqual(['docker.io/library/a:1']);
    await vi.waitFor(async () => expect(await readdir(join(root, 'tmp'))).toEqual([]));
  });

  test('a cancelled pull ends, and its registry is left', async () => {
    const { store } = await open();
    const { registry, reference } = await registryWith(hangOnce());
    const abort = new AbortController();
    const pull = store.pull(reference, { signal: abort.signal });
    pull.catch(() => undefined);
    await vi.waitFor(() => expect(registry.seen('/blobs/')).not.toEqual([]));
    abort.abort();
    expect(await failureOf(pull)).toMatchObject({ code: 'aborted' });
    expect(await failureOf(store.pull(reference, { signal: abort.signal }))).toMatchObject({
      code: 'aborted',
    });
  });
});

describe('its end', () => {
  test('what it was asked goes on in another process', async () => {
    const { store, root, ends } = await open();
    const { registry, reference } = await registryWith(hangOnce());
    await store.importArchive(streamOf(ROOTFS), 'a:1');
    await store.acquire('a:1', 'before');
    const acquired = store.acquire(reference, 'during');
    await vi.waitFor(() => expect(registry.seen('/blobs/')).not.toEqual([]));
    process.kill(await pidOf(root), 'SIGKILL');
    expect((await acquired).image.reference).toBe(reference);
    expect((await store.holders()).sort()).toEqual(['before', 'during']);
    expect(ends).toEqual(['ended by SIGKILL']);
  });

  test('an import, which cannot be asked twice, fails and can be tried again', async () => {
    const { store, root } = await open();
    const pid = await pidOf(root);
    async function* cut() {
      yield ROOTFS.subarray(0, 70_000);
      process.kill(pid, 'SIGKILL');
      await new Promise(() => undefined);
    }
    expect(await failureOf(store.importArchive(cut(), 'a:1'))).toMatchObject({
      code: 'aborted',
      message: expect.stringContaining('SIGKILL'),
    });
    await store.importArchive(streamOf(ROOTFS), 'a:1');
    expect(await store.isReady('a:1')).toBe(false);
  });

  test('one that dies while it is idle is replaced with the next call', async () => {
    const { store, root, ends } = await open();
    process.kill(await pidOf(root), 'SIGKILL');
    await vi.waitFor(() => expect(ends).toHaveLength(1));
    expect(await store.list()).toEqual([]);
  });

  test('a close ends it, also with a pull under way', async () => {
    const { store, root, ends } = await open();
    const { registry, reference } = await registryWith(hangOnce());
    const pull = store.pull(reference);
    pull.catch(() => undefined);
    await vi.waitFor(() => expect(registry.seen('/blobs/')).not.toEqual([]));
    const pid = await pidOf(root);
    await store.close();
    expect(await failureOf(pull)).toMatchObject({ code: 'aborted' });
    expect(await isRunning(pid)).toBe(false);
    expect(ends).toEqual([]);
    expect(await failureOf(store.list())).toMatchObject({ code: 'aborted' });
  });

  test('a store that another process has is refused', async () => {
    const { root } = await open();
    expect(await failureOf(openStoreProcess({ root }, () => undefined))).toMatchObject({ code: 'in-use' });
  });

  test('it does not outlive its owner', async () => {
    const root = join(await scratchFolder(), 'store');
    const index = pathToFileURL(join(import.meta.dirname, '../dist/index.js')).href;
    const script = `
      import { openStoreProcess } from ${JSON.stringify(index)};
      await openStoreProcess({ root: ${JSON.stringify(root)} }, () => undefined);
      process.stdout.write('open');`;
    const owner = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await new Promise((resolve) => owner.stdout.once('data', resolve));
    const pid = await pidOf(root);
    process.kill(pid, 'SIGTERM');
    owner.kill('SIGKILL');
    await vi.waitFor(async () => expect(await isRunning(pid)).toBe(false));
    // What it left is no obstacle, also where nobody reaps the orphan.
    await (await openStoreProcess({ root }, () => undefined)).close();
  });
});
