/** Holds QEMU's command line: what keeps a template unwritable, a host closed, and a restore compatible. */
import { describe, expect, it } from 'vitest';
import { buildQemuArgv, confineArgv, kernelCommandLine, type QemuMachineSpec } from './argv.js';

const base: Omit<QemuMachineSpec, 'role'> = {
  binary: 'qemu-system-x86_64',
  id: 'abc',
  acceleration: { kind: 'tcg', tscKhz: 2_100_000 },
  shape: { vcpus: 2, memoryMiB: 512 },
  networkKind: 'tap',
  networkRestricted: false,
  tapName: 'tap0',
  memoryPath: '/t/memory',
  modulesPath: '/t/modules.ext4',
  sockets: { qmp: '/m/qmp.sock', ctl: '/m/ctl.sock', data: '/m/data.sock' },
};
const template: QemuMachineSpec = {
  ...base,
  role: {
    kind: 'template',
    kernelPath: '/a/vmlinux',
    initramfsPath: '/a/initramfs.cpio',
    serialPath: '/t/s',
  },
};
const restore: QemuMachineSpec = {
  ...base,
  role: { kind: 'restore', overlayPath: '/m/overlay.qcow2', layers: { backingPath: '/i/root,fs' } },
};

/** Values of every occurrence of an option. */
function valuesOf(argv: readonly string[], option: string): string[] {
  return argv.flatMap((word, index) => (word === option ? [argv[index + 1]!] : []));
}
function jsonOf(argv: readonly string[], option: string): Record<string, unknown>[] {
  return valuesOf(argv, option)
    .filter((value) => value.startsWith('{'))
    .map((value) => JSON.parse(value) as Record<string, unknown>);
}

describe('buildQemuArgv', () => {
  it('gives a template and its machines the same devices in the same order', () => {
    const devices = (spec: QemuMachineSpec) => jsonOf(buildQemuArgv(spec), '-device');
    expect(devices(restore)).toEqual(devices(template));
    expect(devices(restore).map((device) => device['driver'])).toEqual([
      'virtio-serial-device',
      'virtserialport',
      'virtserialport',
      'virtio-blk-device',
      'virtio-blk-device',
      'virtio-net-device',
      'virtio-rng-device',
    ]);
    for (const option of ['-machine', '-accel', '-cpu', '-smp', '-m']) {
      expect(valuesOf(buildQemuArgv(restore), option)).toEqual(valuesOf(buildQemuArgv(template), option));
    }
  });

  it('names the ports by ids, without which their closing is not reported', () => {
    const ports = jsonOf(buildQemuArgv(restore), '-device').filter(
      (each) => each['driver'] === 'virtserialport',
    );
    expect(ports.map(({ id, name }) => [id, name])).toEqual([
      ['p_ctl', 'ctl'],
      ['p_data', 'data'],
    ]);
  });

  it('shares the memory file only while the template is built', () => {
    expect(jsonOf(buildQemuArgv(template), '-object')[0]).toMatchObject({
      share: true,
      'mem-path': '/t/memory',
    });
    expect(jsonOf(buildQemuArgv(restore), '-object')[0]).toMatchObject({
      share: false,
      readonly: true,
      rom: 'off',
      reserve: false,
      size: 512 * 1024 * 1024,
    });
  });

  it('names the format of every block device, and writes to the overlay alone', () => {
    const [disk, modules] = jsonOf(buildQemuArgv(restore), '-blockdev');
    expect(disk).toMatchObject({
      driver: 'qcow2',
      'node-name': 'disk',
      file: { filename: '/m/overlay.qcow2', 'node-name': 'disk-file' },
      backing: { driver: 'raw', 'read-only': true, file: { filename: '/i/root,fs', 'read-only': true } },
    });
    expect(modules).toMatchObject({ driver: 'raw', 'read-only': true, file: { 'read-only': true } });
    expect(jsonOf(buildQemuArgv(template), '-blockdev')[0]).toMatchObject({ driver: 'null-co' });
  });

  it('reads a kernel for a template only', () => {
    const built = buildQemuArgv(template);
    expect(valuesOf(built, '-kernel')).toEqual(['/a/vmlinux']);
    expect(built).not.toContain('-incoming');
    const restored = buildQemuArgv(restore);
    expect(restored).not.toContain('-kernel');
    expect(valuesOf(restored, '-incoming')).toEqual(['defer']);
    expect(valuesOf(restored, '-global')).toEqual(['migration.send-configuration=off']);
  });

  it('denies what a broken-out guest would want, and keeps a bounded console', () => {
    const argv = buildQemuArgv(restore);
    expect(valuesOf(argv, '-sandbox')).toEqual([
      'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    ]);
    expect(argv).toContain('-nodefaults');
    expect(argv).toContain('-no-user-config');
    expect(valuesOf(argv, '-chardev').find((value) => value.startsWith('ringbuf,'))).toContain('size=65536');
  });

  it('uses the accelerator it is told to', () => {
    expect(valuesOf(buildQemuArgv(restore), '-cpu')).toEqual(['max,erms=off,fsrm=off,fzrm=off,fsrs=off']);
    const kvm = buildQemuArgv({
      ...restore,
      acceleration: { kind: 'kvm', cpuModel: 'host,-arch-capabilities' },
    });
    expect(valuesOf(kvm, '-accel')).toEqual(['kvm']);
    expect(valuesOf(kvm, '-cpu')).toEqual(['host,-arch-capabilities']);
  });

  it('connects the network it is told to', () => {
    expect(jsonOf(buildQemuArgv(restore), '-netdev')[0]).toEqual({
      type: 'tap',
      id: 'net0',
      ifname: 'tap0',
      script: 'no',
      downscript: 'no',
      vhost: false,
    });
    const user = buildQemuArgv({ ...restore, networkKind: 'user', networkRestricted: true });
    expect(jsonOf(user, '-netdev')[0]).toEqual({ type: 'user', id: 'net0', restrict: true });
  });

  it('doubles commas in paths of option strings', () => {
    const argv = buildQemuArgv({
      ...restore,
      sockets: { ...base.sockets, qmp: '/a,b/qmp.sock', ctl: '/a,b/ctl.sock' },
    });
    expect(valuesOf(argv, '-qmp')).toEqual(['unix:/a,,b/qmp.sock,server=on,wait=off']);
    expect(valuesOf(argv, '-chardev').join(' ')).toContain('path=/a,,b/ctl.sock,server=on');
  });
});

describe('kernelCommandLine', () => {
  it('tells an emulated guest the rate of the counter, and leaves KVM its own clock', () => {
    const words = kernelCommandLine({ kind: 'tcg', tscKhz: 2_100_000 }).split(' ');
    expect(words).toEqual(expect.arrayContaining(['tsc_early_khz=2100000', 'tsc=reliable', 'sandlot.net=1']));
    expect(words).toEqual(expect.arrayContaining(['panic=-1', 'reboot=t', 'console=ttyS0']));
    expect(kernelCommandLine({ kind: 'kvm', cpuModel: 'host' })).not.toContain('tsc');
  });
});

describe('confineArgv', () => {
  const argv = ['qemu', '-x'];

  it('adds nothing unasked', () => {
    expect(confineArgv(argv, {})).toEqual(argv);
  });

  it('enters the namespace before it drops privileges', () => {
    const wrapped = confineArgv(argv, {
      netnsPath: '/run/netns/sl-1',
      runAs: { uid: 2_000_001, gid: 2_000_001 },
    });
    expect(wrapped).toEqual([
      'nsenter',
      '--net=/run/netns/sl-1',
      '--',
      'setpriv',
      '--reuid=2000001',
      '--regid=2000001',
      '--clear-groups',
      '--bounding-set=-all',
      '--inh-caps=-all',
      '--no-new-privs',
      '--',
      'qemu',
      '-x',
    ]);
  });

  it('lets what is of no use without us end with us', () => {
    expect(confineArgv(argv, { endsWithUs: true })).toEqual([
      'setpriv',
      '--pdeathsig=KILL',
      '--',
      'qemu',
      '-x',
    ]);
    const both = confineArgv(argv, { endsWithUs: true, runAs: { uid: 5, gid: 5 } });
    expect(both.filter((word) => word === 'setpriv')).toHaveLength(1);
    // After the change of identity, which would clear it.
    expect(both.indexOf('--pdeathsig=KILL')).toBeGreaterThan(both.indexOf('--reuid=5'));
  });

  it('keeps the one group that may open /dev/kvm', () => {
    const wrapped = confineArgv(argv, { runAs: { uid: 5, gid: 5 }, kvmGid: 104 });
    expect(wrapped).toContain('--groups=104');
    expect(wrapped).not.toContain('--clear-groups');
  });
});
