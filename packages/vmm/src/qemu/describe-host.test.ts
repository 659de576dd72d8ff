/** Holds what a template's validity hangs on: the fingerprint, the counter's rate, the KVM answer. */
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readGuestAssets } from './assets.js';
import { fingerprintOf } from './describe-host.js';
import { chooseTscKhz, measureTscKhz } from './measure-tsc.js';
import { probeKvm, raceEmulation, readKvmGroup } from './probe-kvm.js';

const digests = { 'initramfs.cpio': 'a', 'modules.ext4': 'b', vmlinux: 'c', 'measure-tsc': 'd' };
const tcg = { kind: 'tcg', tscKhz: 2_100_000 } as const;

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandlot-host-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('fingerprintOf', () => {
  it('changes with everything a template depends on, and with nothing else', () => {
    const base = fingerprintOf('10.0.2', { digests }, tcg, '');
    expect(fingerprintOf('10.0.2', { digests: { ...digests, 'measure-tsc': 'x' } }, tcg, '')).toBe(base);
    const others = [
      fingerprintOf('10.0.3', { digests }, tcg, ''),
      ...(['initramfs.cpio', 'modules.ext4', 'vmlinux'] as const).map((name) =>
        fingerprintOf('10.0.2', { digests: { ...digests, [name]: 'x' } }, tcg, ''),
      ),
      fingerprintOf('10.0.2', { digests }, { ...tcg, tscKhz: 2_200_000 }, ''),
      fingerprintOf('10.0.2', { digests }, { kind: 'kvm', cpuModel: 'host' }, 'cpu A'),
      fingerprintOf('10.0.2', { digests }, { kind: 'kvm', cpuModel: 'host' }, 'cpu B'),
    ];
    expect(new Set([base, ...others]).size).toBe(others.length + 1);
  });
});

describe('the counter’s rate', () => {
  it('stays what it was while the host is the same', () => {
    expect(chooseTscKhz(2_100_010, 2_100_000)).toBe(2_100_000);
    expect(chooseTscKhz(2_200_000, 2_100_000)).toBe(2_200_000);
    expect(chooseTscKhz(2_100_010, undefined)).toBe(2_100_010);
  });

  it('is measured once a boot', async () => {
    const program = join(folder, 'measure');
    writeFileSync(program, '#!/bin/sh\necho 2500000\n', { mode: 0o755 });
    expect(await measureTscKhz(program, join(folder, 'state'))).toBe(2_500_000);
    expect(await measureTscKhz('/no/such/program', join(folder, 'state'))).toBe(2_500_000);
  });

  it('is refused when it is none', async () => {
    const program = join(folder, 'wrong');
    writeFileSync(program, '#!/bin/sh\necho 12\n', { mode: 0o755 });
    await expect(measureTscKhz(program, join(folder, 'other'))).rejects.toThrow(/no rate in kHz/);
  });
});

describe('probeKvm', () => {
  const ask = (device: string) =>
    probeKvm({
      binary: 'qemu',
      qemuVersion: '10',
      assets: { digests } as never,
      stateFolder: folder,
      cpuModel: 'host',
      emulation: () => Promise.resolve(tcg),
      device,
    });

  it('says why a host without the device has none', async () => {
    const answer = await ask(join(folder, 'no-kvm'));
    expect(answer.cpuModel).toBeUndefined();
    expect(answer.reason).toMatch(/this host has no .*no-kvm/);
  });

  it.runIf(process.getuid?.() === 0)('wants a device that machines, who are not root, may open', async () => {
    const device = join(folder, 'kvm');
    writeFileSync(device, '', { mode: 0o600 });
    expect((await ask(device)).reason).toContain(`chmod 660 ${device}`);
    expect(await readKvmGroup(device)).toBeUndefined();
    chmodSync(device, 0o660);
    expect((await ask(device)).reason).toContain('to root alone');
    chownSync(device, 0, 104);
    expect(await readKvmGroup(device)).toBe(104);
  });

  const never = (signal: AbortSignal) =>
    new Promise<Error>((resolve) =>
      signal.addEventListener('abort', () => resolve(new Error('ended')), { once: true }),
    );

  it('takes a KVM that is quicker than emulation, however slow', async () => {
    expect(
      await raceEmulation(
        async () => undefined,
        () => expect.unreachable(),
        50,
      ),
    ).toBeUndefined();
    const slow = () => sleep(200, undefined);
    expect(await raceEmulation(slow, never, 50)).toBeUndefined();
  });

  it('takes none that an emulated guest overtakes, nor one that fails', async () => {
    expect(await raceEmulation(never, async () => undefined, 50)).toMatchObject({
      code: 'timeout',
      message: expect.stringContaining('when an emulated one had'),
    });
    const broken = async () => new Error('broken');
    expect(await raceEmulation(broken, never, 50)).toMatchObject({ message: 'broken' });
    const late = () => sleep(200, new Error('broken'));
    expect(await raceEmulation(late, broken, 50)).toMatchObject({ message: 'broken' });
  });
});

describe('readGuestAssets', () => {
  it('says what to do when they are not built or not whole', async () => {
    await expect(readGuestAssets(join(folder, 'none'))).rejects.toMatchObject({
      code: 'vmm-missing',
      message: expect.stringContaining('tools/guest-assets/build.sh'),
    });
    writeFileSync(join(folder, 'manifest.json'), JSON.stringify({ kernel: 'vmlinux', files: {} }));
    await expect(readGuestAssets(folder)).rejects.toThrow(/does not name every file/);
  });
});
