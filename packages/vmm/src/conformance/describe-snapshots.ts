/**
 * The part of the suite for drivers that can save machines: `describeSnapshots(name, options)` beside
 * `describeVmmDriver`. What a guest has in memory is told by a file in its /dev/shm.
 */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readlink, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Machine, RestoreRequest, SavedSnapshot, Snapshot, Template, VmmDriver } from '../driver.js';
import { isRunning } from '../process/process-identity.js';
import { readSnapshot, snapshotPaths } from '../snapshot-files.js';
import type { ConformanceOptions } from './describe-vmm-driver.js';
import { callGuest } from './ping-guest.js';

const diskBytes = 64 * 1024 * 1024;
const onDisk = '/kept';
const inMemory = '/dev/shm/kept';

/** Declares it. */
export function describeSnapshots(name: string, options: ConformanceOptions): void {
  describe(`snapshots of VMM driver ${name}`, () => {
    let root: string;
    let driver: VmmDriver;
    let template: Template;
    let backingPath: string;
    const running = new Set<Machine>();
    let count = 0;
    const never = new AbortController().signal;

    beforeAll(async () => {
      root = await mkdtemp(join(tmpdir(), 'sandlot-save-'));
      driver = options.makeDriver();
      backingPath = join(root, 'rootfs');
      await mkdir(join(root, 'files/dev'), { recursive: true });
      const mke2fs = ['-q', '-t', 'ext4', '-d', join(root, 'files'), backingPath, `${diskBytes / 1024}`];
      await promisify(execFile)('mke2fs', mke2fs);
      template = await driver.buildTemplate(
        {
          folder: join(root, 'template'),
          shape: options.shape,
          network: options.network,
          warm: async (ports, signal) => void (await callGuest(ports, 'GET', '/health', undefined, signal)),
        },
        never,
      );
    }, options.caseTimeoutMs * 3);
    afterEach(async () => {
      for (const machine of running) await machine.end();
      running.clear();
    });
    afterAll(async () => {
      await driver?.close();
      await rm(root, { recursive: true, force: true });
    });

    const test = (title: string, body: () => Promise<void>): void =>
      it(title, body, options.caseTimeoutMs * 2);

    const makeFolder = async (prefix: string): Promise<string> => {
      const folder = join(root, `${prefix}${++count}`);
      await mkdir(folder);
      return folder;
    };
    const restore = async (
      from: Template | Snapshot,
      more: Partial<RestoreRequest> = {},
    ): Promise<Machine> => {
      const folder = more.folder ?? (await makeFolder('m'));
      const layers = 'disk' in from ? from.disk : { backingPath };
      const disk = { ...layers, sizeBytes: diskBytes };
      const id = `m${count}`;
      const machine = await driver.restore(
        { id, folder, from, disk, network: options.network, ...more },
        never,
      );
      running.add(machine);
      return machine;
    };
    /** A machine that is somebody, with a word on its disk and in its memory. */
    const start = async (word: string): Promise<Machine> => {
      const machine = await restore(template);
      const init = {
        ...{ sandboxId: 's', timeUnixMs: Date.now(), hostname: 'one', machineId: '0'.repeat(32) },
        ...{ entropyBase64: randomBytes(64).toString('base64'), resolvConf: '', env: {}, secrets: {} },
        image: { env: [], user: '', workingDir: '', entrypoint: [], cmd: [] },
        growRoot: false,
      };
      const answer = await callGuest(machine.ports, 'POST', '/init', JSON.stringify(init));
      expect(answer.status, answer.body).toBe(200);
      await say(machine, word);
      return machine;
    };
    const save = async (machine: Machine, after: 'go on' | 'stand still'): Promise<SavedSnapshot> => {
      const saved = await machine.snapshotting!.save({ folder: await makeFolder('s'), after }, never);
      const { timings, ...snapshot } = saved;
      expect(timings.stillMs).toBeLessThanOrEqual(timings.totalMs);
      expect(await readSnapshot(saved.folder)).toEqual(snapshot);
      return saved;
    };

    test('a machine that is saved goes on, and its siblings go on from there', async () => {
      const source = await start('before');
      const saved = await save(source, 'go on');
      expect(await hear(source)).toEqual(['before', 'before']);
      await say(source, 'after');
      const siblings = await Promise.all([restore(saved), restore(saved)]);
      for (const sibling of siblings) expect(await hear(sibling)).toEqual(['before', 'before']);
      await say(siblings[0]!, 'first');
      await say(siblings[1]!, 'second');
      expect(await Promise.all([source, ...siblings].map(hear))).toEqual([
        ['after', 'after'],
        ['first', 'first'],
        ['second', 'second'],
      ]);
    });

    test('saves one after the other hold each its own instant, also those of a sibling', async () => {
      const source = await start('one');
      const first = await save(source, 'go on');
      await say(source, 'two');
      const second = await save(source, 'go on');
      await say(source, 'three');
      const sibling = await restore(first);
      await say(sibling, 'other');
      const ofSibling = await save(sibling, 'go on');
      const expectEach = async (): Promise<void> => {
        for (const [saved, word] of [
          [first, 'one'],
          [second, 'two'],
          [ofSibling, 'other'],
        ] as const)
          expect(await hear(await restore(saved))).toEqual([word, word]);
      };
      await expectEach();
      await Promise.all([source.end(), sibling.end()]);
      await expectEach();
    });

    test('what lay in much memory comes back byte for byte', async () => {
      const source = await start('x');
      const text = randomBytes(6 * 1024 * 1024).toString('hex');
      await put(source, '/dev/shm/much', text);
      const saved = await save(source, 'go on');
      await put(source, '/dev/shm/much', 'gone');
      const sibling = await restore(saved);
      expect((await get(sibling, '/dev/shm/much')) === text).toBe(true);
    });

    test('one that stands still goes on in a new machine, on its own disk', async () => {
      const source = await start('here');
      const saved = await save(source, 'stand still');
      const { folder } = source.handle;
      await source.end();
      expect(isRunning(source.handle)).toBe(false);
      let loaded: unknown;
      const beforeRun = async (handle: unknown) => {
        loaded = handle;
      };
      const disk = { ...saved.disk, sizeBytes: diskBytes, kept: true };
      const again = await restore(saved, { folder, disk, beforeRun });
      expect(loaded).toEqual(again.handle);
      expect(await hear(again)).toEqual(['here', 'here']);
      await say(again, 'further');
      const later = await save(again, 'stand still');
      await again.end();
      expect(await hear(await restore(later, { folder, disk }))).toEqual(['further', 'further']);
    });

    test('the disk of one that stood still becomes its snapshot’s; siblings go on from there, and it goes on above it', async () => {
      const source = await start('here');
      const below = await save(source, 'go on');
      await say(source, 'later');
      const saved = await save(source, 'stand still');
      const { folder: machineFolder } = source.handle;
      await source.end();
      const request = { machineFolder, folder: saved.folder, sizeBytes: diskBytes };
      const no = () => Promise.reject(new Error('the test says no'));
      await expect(driver.freezeDisk!({ ...request, beforeSwitch: no })).rejects.toThrow('the test says no');
      expect(existsSync(snapshotPaths(saved.folder).disk)).toBe(false);
      let told = 0;
      const beforeSwitch = async () => void told++;
      await driver.freezeDisk!({ ...request, beforeSwitch });
      // Once more: it is done.
      await driver.freezeDisk!({ ...request, beforeSwitch });
      expect(told).toBe(1);
      const frozen = [...below.disk.frozen, snapshotPaths(saved.folder).disk];
      const disk = { ...saved.disk, frozen, sizeBytes: diskBytes };
      const sibling = await restore(saved, { disk });
      await say(sibling, 'sibling');
      const kept = { ...disk, kept: true };
      const again = await restore(saved, { folder: machineFolder, disk: kept });
      expect(await hear(again)).toEqual(['later', 'later']);
      await say(again, 'further');
      expect(await hear(sibling)).toEqual(['sibling', 'sibling']);
      expect(await hear(await restore(saved, { disk }))).toEqual(['later', 'later']);
    });

    test('one that stands still can go on as it is', async () => {
      const source = await start('here');
      if (!source.pausing) return;
      await save(source, 'stand still');
      const answer = hear(source);
      expect(await Promise.race([answer, sleep(300, 'nothing')])).toBe('nothing');
      await source.pausing.resume();
      expect(await answer).toEqual(['here', 'here']);
    });

    test('a restore that may not run has changed nothing', async () => {
      const source = await start('here');
      const saved = await save(source, 'stand still');
      const { folder } = source.handle;
      await source.end();
      const disk = { ...saved.disk, sizeBytes: diskBytes, kept: true };
      const beforeRun = () => Promise.reject(new Error('the test says no'));
      await expect(restore(saved, { folder, disk, beforeRun })).rejects.toThrow('the test says no');
      expect(await hear(await restore(saved, { folder, disk }))).toEqual(['here', 'here']);
    });

    test('a save that is aborted leaves nothing, and the machine as it was', async () => {
      const source = await start('here');
      for (const afterMs of [0, 5, 30, 80]) {
        const folder = await makeFolder('s');
        const abort = new AbortController();
        if (afterMs === 0) abort.abort();
        else setTimeout(() => abort.abort(), afterMs);
        try {
          await source.snapshotting!.save({ folder, after: 'go on' }, abort.signal);
          // It was faster.
        } catch (error) {
          expect(error).toMatchObject({ name: 'VmmError' });
          if (!(await source.snapshotting!.isDiskTaken(folder))) expect(await readdir(folder)).toEqual([]);
        }
        expect(await hear(source)).toEqual(['here', 'here']);
      }
      expect(await hear(await restore(await save(source, 'go on')))).toEqual(['here', 'here']);
    });

    test('an adopted machine can be saved', async () => {
      const source = await start('here');
      await save(source, 'go on');
      source.detach();
      running.delete(source);
      const adopted = await driver.adopt(JSON.parse(JSON.stringify(source.handle)));
      if (!('ports' in adopted)) throw new Error(`it has ended: ${adopted.detail}`);
      running.add(adopted);
      await say(adopted, 'later');
      expect(await hear(await restore(await save(adopted, 'go on')))).toEqual(['later', 'later']);
    });

    /** Makes one layer of these. */
    const merge = async (layers: readonly string[]): Promise<string> => {
      const folder = await makeFolder('l');
      await driver.mergeLayers!({ layers, folder }, never);
      return snapshotPaths(folder).disk;
    };

    test('layers of a running machine are merged below it; it and its snapshots are the same', async () => {
      const source = await start('0');
      const saves: SavedSnapshot[] = [];
      for (let turn = 1; turn <= 6; turn++) {
        saves.push(await save(source, 'go on'));
        await say(source, `${turn}`);
        await put(source, `/turn-${turn}`, `of turn ${turn}`);
      }
      const before = source.handle.origin!.disk.frozen;
      expect(before).toHaveLength(6);
      const merged = await merge(before.slice(1, 5));
      // Saved meanwhile: what was merged lies lower than it did.
      saves.push(await save(source, 'go on'));
      const after = [before[0]!, merged, ...source.handle.origin!.disk.frozen.slice(5)];
      await source.snapshotting!.restack(after);
      expect(source.handle.origin!.disk.frozen).toEqual(after);
      for (const path of before.slice(1, 5)) await rm(path);
      expect(await hear(source)).toEqual(['6', '6']);
      for (let turn = 1; turn <= 6; turn++)
        expect(await get(source, `/turn-${turn}`)).toBe(`of turn ${turn}`);
      // Once more, down to one; then it is saved and goes on as ever.
      const all = await merge(after);
      await source.snapshotting!.restack([all]);
      for (const path of after) await rm(path);
      // What was merged takes no room any more.
      expect(await goneButHeld(source.handle.pid)).toEqual([]);
      await say(source, 'merged');
      const last = await save(source, 'go on');
      expect(last.disk.frozen).toEqual([all, snapshotPaths(last.folder).disk]);
      await say(source, 'later');
      const sibling = await restore(last);
      expect(await hear(sibling)).toEqual(['merged', 'merged']);
      expect(await get(sibling, '/turn-3')).toBe('of turn 3');
      expect(await hear(source)).toEqual(['later', 'later']);
    });

    test('an adopted machine is put above merged layers, and one that stands still goes on above them', async () => {
      const source = await start('a');
      for (const word of ['b', 'c']) {
        await save(source, 'go on');
        await say(source, word);
      }
      source.detach();
      running.delete(source);
      const adopted = await driver.adopt(JSON.parse(JSON.stringify(source.handle)));
      if (!('ports' in adopted)) throw new Error(`it has ended: ${adopted.detail}`);
      running.add(adopted);
      const { frozen } = adopted.handle.origin!.disk;
      await adopted.snapshotting!.restack([await merge(frozen)]);
      expect(await get(adopted, onDisk)).toBe('c');
      const saved = await save(adopted, 'stand still');
      const { folder } = adopted.handle;
      await adopted.end();
      // Before it was put there, and after: both hold the same, whatever a record says.
      for (const layers of [frozen, [await merge(frozen)]]) {
        const disk = { ...saved.disk, frozen: layers, sizeBytes: diskBytes, kept: true };
        const again = await restore(saved, { folder, disk });
        expect(await get(again, onDisk)).toBe('c');
        await again.end();
      }
    });

    test('a disk whose files are gone is refused at once, and is as it was when they are back', async () => {
      const source = await start('here');
      await save(source, 'go on');
      const saved = await save(source, 'stand still');
      const { folder } = source.handle;
      await source.end();
      const disk = { ...saved.disk, sizeBytes: diskBytes, kept: true };
      const own = join(folder, 'overlay.qcow2');
      const files = [...saved.disk.frozen, ...(existsSync(own) ? [own] : [])];
      for (const path of files) {
        await rename(path, `${path}.away`);
        const begin = performance.now();
        await expect(restore(saved, { folder, disk })).rejects.toThrow(/no such file|cannot be read/i);
        expect(performance.now() - begin).toBeLessThan(10_000);
        await rename(`${path}.away`, path);
      }
      expect(await hear(await restore(saved, { folder, disk }))).toEqual(['here', 'here']);
    });

    test('layers that are not there are refused, and the machine runs on', async () => {
      const source = await start('here');
      await save(source, 'go on');
      const { frozen } = source.handle.origin!.disk;
      await expect(source.snapshotting!.restack([join(root, 'missing')])).rejects.toMatchObject({
        name: 'VmmError',
      });
      expect(source.handle.origin!.disk.frozen).toEqual(frozen);
      await say(source, 'there');
      expect(await hear(await restore(await save(source, 'go on')))).toEqual(['there', 'there']);
      await source.end();
      await expect(source.snapshotting!.restack(frozen)).rejects.toMatchObject({ name: 'MachineEndedError' });
    });

    test('refuses a snapshot of another make, and knows a damaged one', async () => {
      const source = await start('here');
      const saved = await save(source, 'go on');
      await expect(restore({ ...saved, snapshotFingerprint: 'another' })).rejects.toMatchObject({
        code: 'bad-snapshot',
      });
      await rm(join(saved.folder, 'state'));
      await writeFile(join(saved.folder, 'state'), 'short');
      expect(await readSnapshot(saved.folder)).toBeUndefined();
    });
  });
}

/** Disks that are gone and that a process still keeps. */
async function goneButHeld(pid: number): Promise<string[]> {
  const held: string[] = [];
  for (const entry of await readdir(`/proc/${pid}/fd`)) {
    const path = `/proc/${pid}/fd/${entry}`;
    const found = await stat(path).catch(() => undefined);
    const name = await readlink(path).catch(() => '');
    if (found?.isFile() && found.nlink === 0 && name.includes('.qcow2')) held.push(name);
  }
  return held;
}

async function put(machine: Machine, path: string, text: string): Promise<void> {
  const answer = await callGuest(machine.ports, 'PUT', `/files?path=${encodeURIComponent(path)}`, text);
  expect(answer.status, answer.body).toBe(200);
}

async function get(machine: Machine, path: string): Promise<string> {
  return (await callGuest(machine.ports, 'GET', `/files?path=${encodeURIComponent(path)}`)).body;
}

async function say(machine: Machine, word: string): Promise<void> {
  for (const path of [onDisk, inMemory]) await put(machine, path, word);
}

async function hear(machine: Machine): Promise<string[]> {
  return [await get(machine, onDisk), await get(machine, inMemory)];
}
