/** Holds the fake driver's own additions: failures where a test asks for them, and no stray processes. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Machine, type Template, VmmError } from '../driver.js';
import { createFakeDriver, type FakeStep } from './fake-driver.js';

const checkout = fileURLToPath(new URL('../../../../', import.meta.url));
const agentBinary =
  process.env['SANDLOT_TEST_AGENT'] ??
  join(checkout, 'guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent');
const missing = existsSync(agentBinary)
  ? undefined
  : `the guest agent is not built (${agentBinary}); run make build`;
const built = join(checkout, 'packages/vmm/dist/index.js');
const never = new AbortController().signal;
const network = { kind: 'user', restricted: true } as const;
const shape = { vcpus: 1, memoryMiB: 256 };

describe.skipIf(missing)(`the fake driver${missing ? ` (${missing})` : ''}`, () => {
  let root: string;
  let machines: Machine[];

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'sandlot-fake-'));
    await writeFile(join(root, 'rootfs'), 'x');
    machines = [];
  });
  afterEach(async () => {
    for (const machine of machines) await machine.end();
    // The kernel ends what is in the namespace of a wrapper a moment after it.
    await expect.poll(() => findProcesses(root)).toEqual([]);
    await rm(root, { recursive: true, force: true });
  });

  function makeDriver(intercept?: (step: FakeStep) => void | Promise<void>) {
    const driver = createFakeDriver({ agentBinary, ...(intercept ? { intercept } : {}) });
    const build = (name = 'template'): Promise<Template> =>
      driver.buildTemplate({ folder: join(root, name), shape, network, warm: async () => {} }, never);
    const restore = async (template: Template, id: string, signal = never): Promise<Machine> => {
      const folder = join(root, id);
      await mkdir(folder, { recursive: true });
      const disk = { backingPath: join(root, 'rootfs'), sizeBytes: 1024 };
      const machine = await driver.restore({ id, folder, from: template, disk, network }, signal);
      machines.push(machine);
      return machine;
    };
    return { driver, build, restore };
  }

  it('fails the call that a test names, and only that', async () => {
    const { build, restore } = makeDriver(({ operation, phase, call }) => {
      if (operation === 'restore' && phase === 'started' && call === 2) {
        throw new VmmError('load-failed', 'the test says no');
      }
    });
    const template = await build();
    await restore(template, 'a');
    await expect(restore(template, 'b')).rejects.toMatchObject({ code: 'load-failed' });
    expect(await readdir(join(root, 'b'))).toEqual([]);
    await restore(template, 'c');
  });

  it('fails a template at every phase and leaves nothing', async () => {
    for (const bad of ['before', 'started', 'after'] as const) {
      const { build } = makeDriver(({ phase }) => {
        if (phase === bad) throw new Error('no');
      });
      await expect(build(bad)).rejects.toMatchObject({ code: 'template-failed', message: 'no' });
      expect(existsSync(join(root, bad)) ? await readdir(join(root, bad)) : []).toEqual([]);
    }
  });

  it('waits where a test waits, and can be aborted there', async () => {
    const { build, restore } = makeDriver(({ operation }) =>
      operation === 'restore' ? new Promise(() => {}) : undefined,
    );
    const template = await build();
    const controller = new AbortController();
    const pending = restore(template, 'a', controller.signal);
    const first = await Promise.race([pending.catch(() => 'failed'), sleep(50, 'waits')]);
    expect(first).toBe('waits');
    controller.abort();
    await expect(pending).rejects.toMatchObject({ code: 'aborted' });
  });

  it('lets a test kill the guest under it', async () => {
    const { build, restore } = makeDriver(({ operation, phase, pid }) => {
      if (operation === 'restore' && phase === 'started') process.kill(pid!, 'SIGKILL');
    });
    const outcome = await restore(await build(), 'a').catch((error: unknown) => error);
    if (outcome instanceof Error) expect(outcome).toMatchObject({ code: 'start-failed' });
    else expect((await (outcome as Machine).ended).cause).toBe('killed');
  });

  it.skipIf(!existsSync(built))('leaves no process when we die during the build of a template', async () => {
    const script = `
      import { createFakeDriver } from ${JSON.stringify(built)};
      const driver = createFakeDriver({ agentBinary: ${JSON.stringify(agentBinary)} });
      await driver.buildTemplate({
        folder: ${JSON.stringify(join(root, 'killed'))},
        shape: { vcpus: 1, memoryMiB: 256 },
        network: { kind: 'user', restricted: true },
        warm: async () => process.kill(process.pid, 'SIGKILL'),
      }, new AbortController().signal);`;
    const result = spawnSync(process.execPath, ['--input-type=module', '-e', script], { timeout: 20_000 });
    expect(result.signal).toBe('SIGKILL');
    const deadline = performance.now() + 5000;
    while ((await findProcesses(root)).length > 0 && performance.now() < deadline) await sleep(10);
    // The kernel ends what is in the namespace of a wrapper a moment after it.
    await expect.poll(() => findProcesses(root)).toEqual([]);
  });
});

async function findProcesses(root: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of await readdir('/proc')) {
    const folder = /^\d+$/.test(pid) ? await readlink(`/proc/${pid}/cwd`).catch(() => '') : '';
    if (folder.startsWith(root)) found.push(pid);
  }
  return found;
}
