/** The kernel's modules load when something needs them, in an image with kmod and in one without. */
import { createReadStream } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { debianImage } from '../driver/debian-image.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

vi.setConfig({ testTimeout: 240_000, hookTimeout: 900_000 });

const packages = [
  ...['iptables', 'nftables', 'iproute2', 'mount', 'e2fsprogs', 'dmsetup', 'wireguard-tools'],
  ...['squashfs-tools', 'squashfuse', 'fuse'],
];

/** What a user does, and modules that are there afterwards. None of these lines names a module. */
const uses: readonly [string, string, readonly string[]][] = [
  [
    'iptables of old',
    'iptables-legacy -t nat -A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE && iptables-legacy -A INPUT -m conntrack --ctstate NEW -m comment --comment x -j ACCEPT',
    ['ip_tables', 'iptable_nat', 'xt_MASQUERADE', 'xt_conntrack', 'xt_comment'],
  ],
  [
    'iptables of now',
    'iptables-nft -t nat -A POSTROUTING -s 10.9.0.0/16 -j MASQUERADE && iptables-nft -S -t nat | grep -q MASQUERADE',
    ['nf_tables', 'nft_compat', 'nft_chain_nat'],
  ],
  [
    'nft',
    "nft 'add table inet t' && nft 'add chain inet t c { type filter hook input priority 0; }' && nft 'add rule inet t c ct state new log accept' && nft list ruleset | grep -q 'ct state new'",
    ['nft_ct', 'nft_log'],
  ],
  [
    'overlay',
    'mkdir -p /o/l /o/u /o/w /o/m && mount -t overlay none -o lowerdir=/o/l,upperdir=/o/u,workdir=/o/w /o/m && echo x > /o/m/f && test -s /o/u/f',
    ['overlay'],
  ],
  ['veth', 'ip link add v0 type veth peer name v1', ['veth']],
  ['a bridge', 'ip link add b0 type bridge && ip link set v0 master b0', ['bridge', 'stp']],
  [
    'WireGuard',
    'ip link add w0 type wireguard && wg genkey > /k && wg set w0 private-key /k listen-port 5555 && wg show w0 | grep -q 5555',
    ['wireguard'],
  ],
  ['tun and tap', 'ip tuntap add dev t0 mode tun && ip tuntap add dev t1 mode tap', ['tun']],
  ['VXLAN', 'ip link add x0 type vxlan id 7 dev eth0 dstport 4789', ['vxlan']],
  [
    'a loop device',
    'truncate -s 16M /i && mke2fs -q /i && mkdir -p /l && mount -o loop /i /l && test -d /l/lost+found',
    ['loop'],
  ],
  [
    'FUSE',
    'mkdir -p /s /q && echo in > /s/f && mksquashfs /s /s.img -quiet -no-progress >/dev/null && squashfuse /s.img /q && grep -q in /q/f',
    [],
  ],
  ['a squashfs', 'mkdir -p /q2 && mount -o loop -t squashfs /s.img /q2 && grep -q in /q2/f', ['squashfs']],
  [
    'the device mapper',
    "DM_DISABLE_UDEV=1 dmsetup create z --table '0 8 zero' && head -c 4096 /dev/mapper/z | od -An -tx1 | head -1 | grep -q '00 00'",
    ['dm_mod'],
  ],
];

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start({ withPython: false });
});
afterAll(() => node?.close());

describe.each([
  ['with kmod', 'modules-kmod', ['kmod', 'nbd-client', ...packages]],
  ['without kmod', 'modules', packages],
])('an image %s', (_, name, list) => {
  let box: TestSandbox;

  beforeAll(async () => {
    await node.importArchive(createReadStream(await debianImage(name, list)), `debian/${name}:1`);
    box = await node.create({ image: `debian/${name}:1`, memoryMiB: 768, diskBytes: 4 * 2 ** 30 });
  });
  afterAll(() => box?.delete());

  it.each(uses)('has %s', async (_what, line, modules) => {
    const { exitCode, stdout, stderr } = await box.sh(line, { timeoutMs: 200_000 });
    expect(exitCode, stdout + stderr).toBe(0);
    const loaded = (await box.out("cut -d' ' -f1 /proc/modules")).split('\n');
    expect(loaded).toEqual(expect.arrayContaining([...modules]));
  });

  it('has the modules of its kernel, and no others', async () => {
    expect(await box.out('ls /lib/modules')).toBe(await box.out('uname -r'));
    expect(await box.out('ls /lib/modules/$(uname -r)/kernel | head -1')).not.toBe('');
    expect((await box.sh('touch /lib/modules/$(uname -r)/x')).exitCode).not.toBe(0);
  });

  if (name === 'modules-kmod')
    it('and modprobe, lsmod, modinfo and uname agree', async () => {
      await box.out('modprobe nbd max_part=4 && test -b /dev/nbd0 && modprobe dummy numdummies=2');
      expect(await box.out('lsmod | cut -d" " -f1 | sort | tr "\\n" " "')).toBe(
        await box.out(`(echo Module; cut -d' ' -f1 /proc/modules) | sort | tr '\\n' ' '`),
      );
      expect(await box.out('modinfo -F vermagic dummy')).toMatch(
        new RegExp(`^${(await box.out('uname -r')).replaceAll('.', '\\.').replaceAll('+', '\\+')} `),
      );
      expect(await box.out('cat /proc/sys/kernel/modprobe')).toBe('/sbin/modprobe');
      await box.out('modprobe -r dummy && ! lsmod | grep -q ^dummy');
      expect((await box.sh('modprobe no-such-module')).stderr).toContain('not found');
    });
  else
    it('and the helper that the kernel uses serves others too', async () => {
      expect(await box.out('command -v modprobe lsmod kmod || echo none')).toBe('none');
      await box.out('"$(cat /proc/sys/kernel/modprobe)" nbd max_part=4 && test -b /dev/nbd0');
    });
});
