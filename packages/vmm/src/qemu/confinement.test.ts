/**
 * Holds what a machine's process may do, on a real one: own identity, no capability, no new privileges,
 * seccomp, its own network namespace, and nothing of a template that it could write. Needs root.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, cp, mkdir, mkdtemp, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { callGuest } from '../conformance/ping-guest.js';
import type { MachineNetwork, VmmDriver } from '../driver.js';
import { createQemuDriver } from './qemu-driver.js';

const checkout = fileURLToPath(new URL('../../../../', import.meta.url));
const assets = process.env['SANDLOT_TEST_GUEST'] ?? join(checkout, '.cache/guest');
const runAs = { uid: 2_345_678, gid: 2_345_678 };
const tapOwner = String(runAs.uid);
const never = new AbortController().signal;

const missing =
  process.getuid?.() !== 0
    ? 'needs root'
    : existsSync(join(assets, 'manifest.json'))
      ? undefined
      : `the guest's kernel is not built (${assets}); run make build`;

describe.skipIf(missing)(`a confined machine${missing ? ` (${missing})` : ''}`, () => {
  let root: string;
  let driver: VmmDriver;
  const netns = `vmmtest-${process.pid}`;

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'sandlot-confined-'));
    // Traversable for the machine's identity, as the data folder is.
    await chmod(root, 0o711);
    // In a home folder that only root may enter, as a checkout often is.
    const home = join(root, 'home');
    await mkdir(home, { mode: 0o700 });
    await cp(assets, join(home, 'guest'), { recursive: true });
    driver = createQemuDriver({
      assets: join(home, 'guest'),
      stateFolder: join(root, 'state'),
      kvm: 'never',
    });
    await writeFile(join(root, 'rootfs'), Buffer.alloc(1024 * 1024), { mode: 0o444 });
  });
  afterAll(async () => {
    await driver.close();
    await rm(root, { recursive: true, force: true });
  });

  async function runOn(network: MachineNetwork, name: string, check: (pid: number) => Promise<void>) {
    const template = await driver.buildTemplate(
      {
        folder: join(root, name),
        shape: { vcpus: 1, memoryMiB: 256 },
        network,
        runAs,
        warm: async (ports, signal) => void (await callGuest(ports, 'GET', '/health', undefined, signal)),
      },
      never,
    );
    for (const file of ['memory', 'state', 'modules.ext4', 'template.json']) {
      expect(await stat(join(root, name, file))).toMatchObject({ uid: 0, mode: 0o100444 });
    }
    const folder = join(root, `${name}-m`);
    await mkdir(folder);
    const machine = await driver.restore(
      {
        id: name,
        folder,
        from: template,
        disk: { backingPath: join(root, 'rootfs'), sizeBytes: 1024 ** 3 },
        network,
        runAs,
      },
      never,
    );
    try {
      expect((await callGuest(machine.ports, 'GET', '/health')).status).toBe(200);
      expect(await stat(folder)).toMatchObject({ uid: runAs.uid, mode: 0o40700 });
      expect(await stat(join(folder, 'overlay.qcow2'))).toMatchObject({ uid: runAs.uid, mode: 0o100600 });
      const status = await readFile(`/proc/${machine.handle.pid}/status`, 'utf8');
      const field = (key: string) => new RegExp(`^${key}:[ \\t]*(.*)$`, 'm').exec(status)?.[1];
      expect(field('Uid')).toBe(Array(4).fill(runAs.uid).join('\t'));
      expect(field('Gid')).toBe(Array(4).fill(runAs.gid).join('\t'));
      expect(field('Groups')?.trim()).toBe('');
      for (const set of ['CapEff', 'CapPrm', 'CapInh', 'CapBnd', 'CapAmb']) {
        expect(field(set), set).toBe('0000000000000000');
      }
      expect(field('NoNewPrivs')).toBe('1');
      expect(field('Seccomp')).toBe('2');
      expect((await readFile(`/proc/${machine.handle.pid}/oom_score_adj`, 'utf8')).trim()).toBe('500');
      await check(machine.handle.pid);
    } finally {
      await machine.end();
    }
  }

  it('has no rights but its own folder', async () => {
    await runOn({ kind: 'user', restricted: true }, 'user', async () => {});
  }, 120_000);

  it('lives in its own network namespace, on its own tap', async (context) => {
    const tun = existsSync('/dev/net/tun') ? (await stat('/dev/net/tun')).mode & 0o006 : 0;
    if (tun !== 0o006) return context.skip('/dev/net/tun may not be opened by all here');
    execFileSync('ip', ['netns', 'add', netns]);
    try {
      execFileSync('ip', [
        '-n',
        netns,
        'tuntap',
        'add',
        'dev',
        'tap0',
        'mode',
        'tap',
        'vnet_hdr',
        'user',
        tapOwner,
      ]);
      execFileSync('ip', ['-n', netns, 'link', 'set', 'tap0', 'up']);
      const network = { kind: 'tap', netnsPath: `/run/netns/${netns}`, tapName: 'tap0' } as const;
      await runOn(network, 'tap', async (pid) => {
        expect(await readlink(`/proc/${pid}/ns/net`)).not.toBe(await readlink('/proc/self/ns/net'));
        const links = execFileSync('ip', ['-n', netns, '-o', 'link', 'show', 'tap0'], { encoding: 'utf8' });
        expect(links).toContain('LOWER_UP');
      });
    } finally {
      execFileSync('ip', ['netns', 'del', netns]);
    }
  }, 120_000);
});
