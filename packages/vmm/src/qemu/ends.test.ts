/**
 * Holds what only a real guest can show: every way it can end is told apart, seen or unseen; its
 * console cannot fill the host; its disk has the size asked for. One template for all cases.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { callGuest } from '../conformance/ping-guest.js';
import type { Machine, Template, VmmDriver } from '../driver.js';
import { createQemuDriver } from './qemu-driver.js';
import { QmpClient } from './qmp-client.js';

const checkout = fileURLToPath(new URL('../../../../', import.meta.url));
const assets = process.env['SANDLOT_TEST_GUEST'] ?? join(checkout, '.cache/guest');
const missing = existsSync(join(assets, 'manifest.json'))
  ? undefined
  : `the guest's kernel is not built (${assets}); run make build`;
const never = new AbortController().signal;
const network = { kind: 'user', restricted: true } as const;
const diskBytes = 1024 ** 3;

describe.skipIf(missing)(`a guest${missing ? ` (${missing})` : ''}`, () => {
  let root: string;
  let driver: VmmDriver;
  let template: Template;
  let machine: Machine | undefined;
  let count = 0;

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'sandlot-ends-'));
    await makeRootfs(join(root, 'rootfs'));
    driver = createQemuDriver({ assets, stateFolder: join(root, 'state'), kvm: 'never' });
    template = await driver.buildTemplate(
      {
        folder: join(root, 'template'),
        shape: { vcpus: 1, memoryMiB: 256 },
        network,
        warm: async (ports, signal) => void (await callGuest(ports, 'GET', '/health', undefined, signal)),
      },
      never,
    );
  }, 180_000);
  afterEach(async () => {
    await machine?.end();
    machine = undefined;
  });
  afterAll(async () => {
    await driver?.close();
    await rm(root, { recursive: true, force: true });
  });

  async function makeRootfs(path: string): Promise<void> {
    const tree = join(root, 'tree');
    await mkdir(join(tree, 'bin'), { recursive: true });
    const source = fileURLToPath(new URL('fixtures/end-guest.rs', import.meta.url));
    const flags = ['--edition', '2021', '-C', 'target-feature=+crt-static', '-C', 'strip=symbols'];
    execFileSync('rustc', [...flags, '-o', join(tree, 'bin/end-guest'), source], { stdio: 'pipe' });
    execFileSync('mke2fs', ['-q', '-t', 'ext4', '-d', tree, path, '32M'], {
      env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/sbin` },
    });
  }

  async function start(rebootOf?: Machine): Promise<Machine> {
    const folder = rebootOf?.handle.folder ?? join(root, `m${++count}`);
    await mkdir(folder, { recursive: true });
    const kept = rebootOf !== undefined;
    const disk = { backingPath: join(root, 'rootfs'), sizeBytes: diskBytes, kept };
    const started = await driver.restore({ id: `m${count}`, folder, from: template, disk, network }, never);
    machine = started;
    const init = await callGuest(
      started.ports,
      'POST',
      '/init',
      JSON.stringify({
        sandboxId: `m${count}`,
        timeUnixMs: Date.now(),
        entropyBase64: randomBytes(32).toString('base64'),
        hostname: 'ends',
        machineId: randomBytes(16).toString('hex'),
        resolvConf: '',
        image: { env: ['PATH=/bin'], user: '', workingDir: '', entrypoint: [], cmd: [] },
        env: {},
        secrets: {},
        growRoot: true,
        rebooted: kept,
      }),
    );
    expect(init, init.body).toMatchObject({ status: 200 });
    return started;
  }

  /** Runs the one program there is; resolves with its output unless the guest ends under it. */
  async function run(on: Machine, argument: string, signal?: AbortSignal): Promise<string> {
    const spec = Buffer.from(JSON.stringify({ argv: ['/bin/end-guest', argument] }));
    const head = Buffer.alloc(5);
    head.writeUInt32BE(spec.length, 1);
    return (await callGuest(on.ports, 'POST', '/exec', Buffer.concat([head, spec]), signal)).body;
  }

  const test = (title: string, body: () => Promise<void>): void => it(title, body, 60_000);

  for (const [how, cause, detail] of [
    ['poweroff', 'guest-shutdown', /powered itself off/],
    ['panic', 'guest-panic', /^Kernel panic - not syncing: sysrq/],
  ] as const) {
    test(`that ends by ${how} ends as ${cause}`, async () => {
      const started = await start();
      void run(started, how).catch(() => {});
      const end = await started.ended;
      expect(end.cause).toBe(cause);
      expect(end.detail).toMatch(detail);
      // What it said last is still there.
      if (how === 'panic') expect(await started.readSerialTail(65_536)).toContain('Kernel panic');
      await started.end();
      expect((await started.ended).cause).toBe(cause);
    });
  }

  for (const watched of [true, false]) {
    test(`that reboots ${watched ? '' : 'while nobody watches '}goes on with its disk`, async () => {
      let old = await start();
      const wrote = await callGuest(old.ports, 'PUT', '/files?path=/kept', Buffer.from('yes'));
      expect(wrote.status, wrote.body).toBe(200);
      if (!watched) old.detach();
      let asked = watched ? new Promise<void>((resolve) => old.onGuestReset(resolve)) : undefined;
      const { pid } = old.handle;
      // It is repeated until it is answered, and must not be said to the next machine.
      const said = new AbortController();
      void run(old, 'reboot', said.signal).catch(() => {});
      if (!watched) {
        await untilStopped(join(old.handle.folder, 'qmp.sock'));
        const found = await driver.adopt(old.handle);
        if (!('handle' in found)) throw new Error(`ended: ${found.cause}`);
        machine = old = found;
        asked = new Promise((resolve) => found.onGuestReset(resolve));
      }
      await asked;
      said.abort();
      await old.end();
      expect((await old.ended).cause).toBe('requested');
      const again = await start(old);
      expect(again.handle.pid).not.toBe(pid);
      expect((await callGuest(again.ports, 'GET', '/files?path=/kept')).body).toBe('yes');
    });
  }

  test('that powers off while nobody watches is found with its cause', async () => {
    const started = await start();
    started.detach();
    void run(started, 'poweroff').catch(() => {});
    await untilStopped(join(started.handle.folder, 'qmp.sock'));
    const found = await driver.adopt(started.handle);
    machine = 'handle' in found ? found : undefined;
    expect(found).toMatchObject({ cause: 'guest-shutdown' });
  });

  /** Asks QEMU by itself, because the driver would act on the answer. */
  async function untilStopped(socket: string): Promise<void> {
    const qmp = await QmpClient.connect(socket, 10_000);
    try {
      while ((await qmp.execute<{ status: string }>('query-status')).status === 'running') await sleep(50);
    } finally {
      qmp.close();
    }
  }

  test('that panics while nobody watches is found with its cause', async () => {
    const started = await start();
    started.detach();
    void run(started, 'panic').catch(() => {});
    const found = await driver.adopt(started.handle);
    machine = 'handle' in found ? found : undefined;
    const end = 'handle' in found ? await found.ended : found;
    expect(end.cause).toBe('guest-panic');
    expect(end.detail).toContain('sysrq');
  });

  test('that prints without end takes no room on the host', async () => {
    const started = await start();
    const used = async (): Promise<number> => {
      let sum = 0;
      for (const name of await readdir(started.handle.folder)) {
        if (name !== 'overlay.qcow2') sum += (await stat(join(started.handle.folder, name))).size;
      }
      return sum;
    };
    const before = await used();
    await run(started, 'print');
    const tail = await started.readSerialTail(1024 * 1024);
    expect(tail.length).toBeLessThanOrEqual(64 * 1024);
    expect(tail).toContain('the last line');
    expect(await used()).toBe(before);
  });

  test('sees its disk at the size asked for, not at its template’s', async () => {
    expect(await run(await start(), 'disk')).toContain(String(diskBytes / 512));
  });
});
