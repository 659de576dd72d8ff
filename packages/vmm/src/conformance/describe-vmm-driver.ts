/**
 * The suite that makes a VMM driver done: `describeVmmDriver(name, options)` in a vitest file. It uses
 * only the contract of `driver.ts` and the guest channel, so that it holds for any driver. One
 * template is built and reused by all cases, because a boot is the most expensive thing here.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Machine, MachineEnd, MachineNetwork, Shape, Template, VmmDriver } from '../driver.js';
import { MachineEndedError, VmmError } from '../driver.js';
import { isRunning } from '../process/process-identity.js';
import { readTemplate } from '../template-files.js';
import { callGuest } from './ping-guest.js';

/** What the suite needs to know of a driver. */
export interface ConformanceOptions {
  /** A new driver over the same things: a second one stands for our daemon after its restart. */
  makeDriver(): VmmDriver;
  shape: Shape;
  network: MachineNetwork;
  /** Deadline of one case, in milliseconds; the template's build has three times as much. */
  caseTimeoutMs: number;
}

const diskBytes = 64 * 1024 * 1024;

/** Declares the suite. */
export function describeVmmDriver(name: string, options: ConformanceOptions): void {
  describe(`VMM driver ${name}`, () => {
    let root: string;
    let driver: VmmDriver;
    let template: Template;
    let disk: { backingPath: string; sizeBytes: number };
    const running = new Set<Machine>();
    let count = 0;
    const never = new AbortController().signal;

    const warm = async (ports: Machine['ports'], signal: AbortSignal): Promise<void> => {
      expect((await callGuest(ports, 'GET', '/health', undefined, signal)).status).toBe(200);
    };
    const restoreRequest = (from: Template = template) => {
      const id = `m${++count}`;
      return { id, folder: join(root, id), from, disk, network: options.network };
    };
    const restore = async (): Promise<Machine> => {
      const request = restoreRequest();
      await mkdir(request.folder);
      const machine = await driver.restore(request, never);
      running.add(machine);
      return machine;
    };

    beforeAll(async () => {
      root = await mkdtemp(join(tmpdir(), 'sandlot-vmm-'));
      driver = options.makeDriver();
      disk = { backingPath: join(root, 'rootfs'), sizeBytes: 2 * diskBytes };
      await writeFile(disk.backingPath, '');
      await truncate(disk.backingPath, diskBytes);
      template = await driver.buildTemplate(
        { folder: join(root, 'template'), shape: options.shape, network: options.network, warm },
        never,
      );
    }, options.caseTimeoutMs * 3);

    afterEach(async () => {
      for (const machine of running) await machine.end();
      running.clear();
      // The kernel ends what is in the namespace of a fake machine a moment after its wrapper.
      await expect.poll(() => findProcessesIn(root), { message: 'processes left behind' }).toEqual([]);
    });

    afterAll(async () => {
      await driver?.close();
      await rm(root, { recursive: true, force: true });
    });

    const test = (title: string, body: () => Promise<void>): void => it(title, body, options.caseTimeoutMs);

    test('describes itself, always alike', async () => {
      const info = await driver.describe();
      expect(info.fingerprint).not.toBe('');
      expect(info.reason).not.toBe('');
      const other = options.makeDriver();
      expect(await other.describe()).toEqual(info);
      await other.close();
    });

    test('builds a template that is found again', async () => {
      expect(template.fingerprint).toBe((await driver.describe()).fingerprint);
      expect(await readTemplate(template.folder)).toEqual(template);
    });

    test('leaves nothing of a template that fails to warm', async () => {
      const folder = join(root, 'fails');
      const build = driver.buildTemplate(
        {
          folder,
          shape: options.shape,
          network: options.network,
          warm: () => Promise.reject(new Error('the test says no')),
        },
        never,
      );
      const error: unknown = await build.catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(VmmError);
      expect((error as VmmError).code).toBe('template-failed');
      expect((error as VmmError).message).toContain('the test says no');
      expect(await readdir(folder)).toEqual([]);
    });

    test('leaves nothing of a template that is aborted', async () => {
      const folder = join(root, 'aborted');
      const controller = new AbortController();
      const build = driver.buildTemplate(
        {
          folder,
          shape: options.shape,
          network: options.network,
          warm: async (_ports, signal) => {
            controller.abort();
            expect(signal.aborted).toBe(true);
            await new Promise(() => {});
          },
        },
        controller.signal,
      );
      await expect(build).rejects.toMatchObject({ name: 'VmmError', code: 'aborted' });
      expect(await readdir(folder)).toEqual([]);
      expect(await readTemplate(folder)).toBeUndefined();
    });

    test('takes no damaged template for one', async () => {
      expect(await readTemplate(join(root, 'no-such-folder'))).toBeUndefined();
      const folder = join(root, 'half');
      await mkdir(folder);
      const description = JSON.parse(
        await readFile(join(template.folder, 'template.json'), 'utf8'),
      ) as object;
      await writeFile(join(folder, 'template.json'), JSON.stringify(description));
      expect(await readTemplate(folder)).toBeUndefined();
    });

    test('restores a machine whose guest answers', async () => {
      const machine = await restore();
      expect((await callGuest(machine.ports, 'GET', '/health')).status).toBe(200);
      const { diskMs, processMs, loadMs } = machine.timings!;
      expect(diskMs).toBeLessThanOrEqual(processMs);
      expect(processMs).toBeLessThanOrEqual(loadMs);
      expect(machine.handle).toMatchObject({ driver: (await driver.describe()).name, id: `m${count}` });
      expect(isRunning(machine.handle)).toBe(true);
    });

    test('restores two machines from one template at once', async () => {
      const machines = await Promise.all([restore(), restore()]);
      const answers = await Promise.all(machines.map((each) => callGuest(each.ports, 'GET', '/health')));
      expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
      await machines[0]!.end();
      expect((await callGuest(machines[1]!.ports, 'GET', '/health')).status).toBe(200);
    });

    test('never changes a template', async () => {
      const before = await digestFolder(template.folder);
      const machine = await restore();
      await callGuest(machine.ports, 'POST', '/warm');
      await machine.end();
      expect(await digestFolder(template.folder)).toEqual(before);
      for (const file of await readdir(template.folder)) {
        expect((await stat(join(template.folder, file))).mode & 0o222, `${file} is writable`).toBe(0);
      }
    });

    test('ends a machine at once, and again', async () => {
      const machine = await restore();
      await Promise.all([machine.end(), machine.end()]);
      expect(isRunning(machine.handle)).toBe(false);
      await machine.end();
      expect((await machine.ended).cause).toBe('requested');
      if (machine.pausing) await expect(machine.pausing.pause()).rejects.toBeInstanceOf(MachineEndedError);
    });

    test('sees a machine killed from outside', async () => {
      const machine = await restore();
      process.kill(machine.handle.pid, 'SIGKILL');
      expect((await machine.ended).cause).toBe('killed');
      await machine.end();
      expect((await machine.ended).cause).toBe('killed');
    });

    test('adopts a machine that was let go', async () => {
      const first = await restore();
      await callGuest(first.ports, 'GET', '/health');
      first.detach();
      const second = options.makeDriver();
      const adopted = expectMachine(await second.adopt(JSON.parse(JSON.stringify(first.handle))));
      running.delete(first);
      running.add(adopted);
      expect(adopted.handle).toEqual(first.handle);
      expect(adopted.ports).toEqual(first.ports);
      expect((await callGuest(adopted.ports, 'GET', '/health')).status).toBe(200);
      await adopted.end();
      expect((await adopted.ended).cause).toBe('requested');
      expect(isRunning(first.handle)).toBe(false);
      await second.close();
    });

    test('sees an adopted machine killed from outside', async () => {
      const first = await restore();
      first.detach();
      running.delete(first);
      const adopted = expectMachine(await driver.adopt(first.handle));
      running.add(adopted);
      process.kill(adopted.handle.pid, 'SIGKILL');
      expect((await adopted.ended).cause).toBe('killed');
    });

    test('tells of a machine that is gone', async () => {
      const machine = await restore();
      await machine.end();
      expect(expectEnd(await driver.adopt(machine.handle)).cause).toBe('found-gone');
    });

    test('never takes another process for its machine', async () => {
      const handle = { driver: 'x', id: 'x', pid: process.pid, startTicks: 1, folder: join(root, 'x') };
      expect(expectEnd(await driver.adopt(handle)).cause).toBe('found-gone');
    });

    test('leaves nothing of a restore that is aborted, whenever', async () => {
      for (const afterMs of [0, 1, 5, 20, 60]) {
        const request = restoreRequest();
        await mkdir(request.folder);
        const controller = new AbortController();
        if (afterMs === 0) controller.abort();
        else setTimeout(() => controller.abort(), afterMs);
        try {
          running.add(await driver.restore(request, controller.signal));
          // It was faster than the abort: then it is a machine like any other.
        } catch (error) {
          expect(error).toMatchObject({ name: 'VmmError', code: 'aborted' });
          expect(await readdir(request.folder)).toEqual([]);
        }
      }
    });

    test('refuses a template of another make, and a disk that is not there', async () => {
      const foreign = restoreRequest({ ...template, fingerprint: 'another' });
      await mkdir(foreign.folder);
      await expect(driver.restore(foreign, never)).rejects.toMatchObject({ code: 'bad-template' });
      const diskless = restoreRequest();
      await mkdir(diskless.folder);
      diskless.disk = { ...disk, backingPath: join(root, 'no-such-rootfs') };
      await expect(driver.restore(diskless, never)).rejects.toBeInstanceOf(VmmError);
      expect(await readdir(diskless.folder)).toEqual([]);
    });

    test('pauses and resumes, where it can', async () => {
      const machine = await restore();
      if (!machine.pausing) return;
      await machine.pausing.pause();
      const answer = callGuest(machine.ports, 'GET', '/health');
      const early = await Promise.race([answer, sleep(300, 'nothing')]);
      expect(early).toBe('nothing');
      await machine.pausing.resume();
      expect((await answer).status).toBe(200);
    });

    test('survives ten lives without a leak of descriptors', async () => {
      const open = async (): Promise<number> => (await readdir('/proc/self/fd')).length;
      await (await restore()).end();
      const before = await open();
      for (let life = 0; life < 10; life++) {
        const machine = await restore();
        running.delete(machine);
        await machine.end();
      }
      expect(await open()).toBeLessThanOrEqual(before + 2);
    });
  });
}

function expectMachine(found: Machine | MachineEnd): Machine {
  if (!('handle' in found))
    throw new Error(`expected a machine, found an end: ${found.cause}: ${found.detail}`);
  return found;
}

function expectEnd(found: Machine | MachineEnd): MachineEnd {
  if ('handle' in found) throw new Error(`expected an end, found a machine: ${found.handle.id}`);
  return found;
}

async function digestFolder(folder: string): Promise<Record<string, string>> {
  const digests: Record<string, string> = {};
  for (const name of (await readdir(folder)).sort()) {
    const hash = createHash('sha256');
    for await (const chunk of createReadStream(join(folder, name))) hash.update(chunk as Buffer);
    digests[name] = hash.digest('hex');
  }
  return digests;
}

/** Processes whose working folder is below `root`: every machine's is. Corpses have none. */
async function findProcessesIn(root: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    const folder = await readlink(`/proc/${pid}/cwd`).catch(() => '');
    if (folder.startsWith(root)) found.push(`${pid} in ${folder}`);
  }
  return found;
}
