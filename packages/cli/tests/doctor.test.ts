/** What `doctor` says about hosts that lack something. */
import { describe, expect, it } from 'vitest';
import type { DoctorHost } from '../src/doctor/check.js';
import { clock, disk, kvm, memory, port, rights } from '../src/doctor/host-checks.js';
import { e2fsprogs, guestAssets, networkPrograms, qemu, route, tun } from '../src/doctor/program-checks.js';

const good: DoctorHost = {
  isRoot: true,
  dataFolder: '/d',
  guestAssets: '/g',
  runProgram: (file) =>
    ({ 'qemu-system-x86_64': 'QEMU emulator version 10.0.2 (Debian)', mke2fs: 'mke2fs 1.47.2 (1-Jan-2025)' })[
      file
    ] ?? 'ok',
  readText: (file) =>
    ({
      '/g/manifest.json': '{"files": {"vmlinux": "x", "initramfs.cpio": "y"}}',
      '/proc/net/route':
        'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t01\t3\t0\t0\t0\t00000000\n',
    })[file],
  exists: () => true,
  canOpen: () => true,
  freeBytes: () => 100 * 2 ** 30,
  memoryBytes: 16 * 2 ** 30,
  cores: 2,
  nowMs: Date.UTC(2026, 10, 30),
  listen: { host: '127.0.0.1', port: 7070 },
  canListen: async () => true,
  serverStatus: undefined,
};
const noText: DoctorHost['readText'] = () => undefined;
const all = [
  rights,
  kvm,
  qemu,
  e2fsprogs,
  networkPrograms,
  guestAssets,
  tun,
  route,
  memory,
  disk,
  port,
  clock,
];

describe('doctor', () => {
  it('finds nothing on a good host', async () => {
    for (const check of all) expect(await check(good)).toMatchObject({ result: 'ok' });
  });

  it.each([
    ['not root', rights, { isRoot: false }, 'warn', /root/],
    ['no /dev/kvm', kvm, { exists: () => false }, 'warn', /18 times slower/],
    [
      'kvm that does not work',
      kvm,
      { serverStatus: { accelerator: 'tcg', acceleratorReason: 'no guest started' } },
      'warn',
      /18 times/,
    ],
    ['no QEMU', qemu, { runProgram: () => undefined }, 'fail', /apt-get install qemu/],
    ['old QEMU', qemu, { runProgram: () => 'QEMU emulator version 7.2.1' }, 'fail', /8\.2/],
    ['old e2fsprogs', e2fsprogs, { runProgram: () => 'mke2fs 1.47.0 (5-Feb-2023)' }, 'fail', /1\.47\.1/],
    [
      'no nft',
      networkPrograms,
      { runProgram: (file: string) => (file === 'nft' ? undefined : 'x') },
      'fail',
      /nftables/,
    ],
    [
      'no guest files',
      guestAssets,
      { exists: (file: string) => file !== '/g/vmlinux' },
      'fail',
      /make build/,
    ],
    ['a half-made folder of guest files', guestAssets, { readText: noText }, 'fail', /make build/],
    ['no tun', tun, { canOpen: () => false }, 'warn', /modprobe/],
    ['no route', route, { readText: () => 'Iface\n' }, 'warn', /reach nothing/],
    ['little memory', memory, { memoryBytes: 2 ** 30 }, 'fail', /2 GiB/],
    ['a full disk', disk, { freeBytes: () => 2 ** 30 }, 'fail', /--data/],
    ['a taken port', port, { canListen: async () => false }, 'warn', /--listen/],
    ['a clock in the past', clock, { nowMs: 0 }, 'fail', /Set the time/],
  ] as const)('%s', async (_name, check, change, result, advice) => {
    const finding = await check({ ...good, ...(change as Partial<DoctorHost>) });
    expect(finding.result).toBe(result);
    expect(finding.advice).toMatch(advice);
  });
});
