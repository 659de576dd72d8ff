/**
 * The command line of QEMU, as a pure function of what the machine is. The template and every
 * machine restored from it must have the same devices in the same order: raise
 * {@link deviceModelVersion} with any change that the guest could see.
 */
import type { DiskLayers, MachineNetwork, RunAs, Shape } from '../driver.js';

/** Part of a template's fingerprint. */
export const deviceModelVersion = 2;

/** The same in every guest: addresses are part of the template (details in the node agent's network). */
export const guestMac = '52:54:00:12:34:56';

/** Ids that commands and events name. */
export const qemuIds = { disk: 'disk', serial: 'serial', ctlPort: 'p_ctl', dataPort: 'p_data' } as const;

/** How the processor is run. */
export type Acceleration =
  | { kind: 'tcg'; tscKhz: number }
  /** `host`, `host` without what this host cannot give a guest, or a named one. */
  | { kind: 'kvm'; cpuModel: string };

/** Everything QEMU's command line depends on. Paths are absolute. */
export interface QemuMachineSpec {
  binary: string;
  id: string;
  acceleration: Acceleration;
  shape: Shape;
  networkKind: MachineNetwork['kind'];
  /** Of the `user` network only: nothing leaves. */
  networkRestricted: boolean;
  tapName?: string;
  memoryPath: string;
  /** The host promises no more memory than it has, whatever we ask. */
  strictMemory?: boolean;
  modulesPath: string;
  sockets: { qmp: string; ctl: string; data: string };
  role:
    | {
        kind: 'template';
        kernelPath: string;
        initramfsPath: string;
        serialPath: string;
      }
    | { kind: 'restore'; overlayPath: string; layers: DiskLayers };
}

/** Size of the disk that a template has in place of the machine's own. Small, so that a guest can tell. */
export const placeholderDiskBytes = 1024 * 1024;

/** Bytes of the serial console that are kept: a guest can print for ever, the host must not store it. */
export const serialRingBytes = 64 * 1024;

/** argv of QEMU. Pure. */
export function buildQemuArgv(spec: QemuMachineSpec): string[] {
  const { role, shape } = spec;
  return [
    spec.binary,
    '-name',
    `sandlot-${spec.id}`,
    '-nodefaults',
    '-no-user-config',
    '-display',
    'none',
    '-machine',
    // The saved device state carries no description of itself, and none is to be expected.
    'microvm,memory-backend=ram0,dump-guest-core=off,suppress-vmdesc=on',
    ...accelerationArgs(spec.acceleration),
    '-smp',
    String(shape.vcpus),
    '-m',
    `${shape.memoryMiB}M`,
    '-object',
    json(memoryBackend(spec)),
    // A guest that resets or powers off stays, stopped, until we have read why, and is then ended.
    '-action',
    'reboot=shutdown,shutdown=pause',
    // QEMU needs none of it once it runs; a guest that breaks out of its devices shall not have it.
    '-sandbox',
    'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    ...(role.kind === 'template' ? bootArgs(spec.acceleration, role) : incomingArgs()),
    ...deviceArgs(spec),
    '-qmp',
    `unix:${escapeComma(spec.sockets.qmp)},server=on,wait=off`,
  ];
}

/**
 * The guest kernel's command line. Without `tsc_early_khz` the emulated microvm, which has no other
 * clock to calibrate against, can hang at boot; without `tsc=reliable` its clock has 4 ms steps.
 * An emulated processor does not speculate: the kernel's mitigations would only cost time.
 * `sandlot.net=1` asks the agent to configure the network before the template is saved. The last one is a program that
 * the kernel would run as the machine's root when something executes /sbin/init: from a path where nobody can put one
 * (docs/views.md).
 */
export function kernelCommandLine(acceleration: Acceleration): string {
  const clock =
    acceleration.kind === 'tcg' ? ` tsc_early_khz=${acceleration.tscKhz} tsc=reliable mitigations=off` : '';
  return `console=ttyS0 quiet panic=-1 reboot=t${clock} sandlot.net=1 TOMOYO_loader=/dev/null/none`;
}

/**
 * Everything QEMU can emulate, without the promise that `rep movsb` is fast: emulated it goes byte by byte, and a
 * kernel that believes the promise copies with it (transfers took twice as long).
 */
const emulatedCpu = 'max,erms=off,fsrm=off,fzrm=off,fsrs=off';

function accelerationArgs(acceleration: Acceleration): string[] {
  return acceleration.kind === 'kvm'
    ? ['-accel', 'kvm', '-cpu', acceleration.cpuModel]
    : ['-accel', 'tcg', '-cpu', emulatedCpu];
}

function memoryBackend(spec: QemuMachineSpec): Record<string, unknown> {
  return {
    'qom-type': 'memory-backend-file',
    id: 'ram0',
    size: spec.shape.memoryMiB * 1024 * 1024,
    'mem-path': spec.memoryPath,
    // Private and read-only at restore: one file serves every machine, and none can write to it.
    ...(spec.role.kind === 'template' ? { share: true } : { share: false, readonly: true, rom: 'off' }),
    // How much may be promised is decided when room is booked. By default the kernel refuses a machine that is larger
    // than the host, although it never uses as much; QEMU refuses this where the kernel would not listen.
    ...(spec.role.kind === 'template' || spec.strictMemory ? {} : { reserve: false }),
  };
}

function bootArgs(
  acceleration: Acceleration,
  role: Extract<QemuMachineSpec['role'], { kind: 'template' }>,
): string[] {
  return [
    '-kernel',
    role.kernelPath,
    '-initrd',
    role.initramfsPath,
    '-append',
    kernelCommandLine(acceleration),
    '-chardev',
    `file,id=${qemuIds.serial},path=${escapeComma(role.serialPath)}`,
  ];
}

function incomingArgs(): string[] {
  return [
    // No kernel: it is in the memory already, and 60 MB of it need not be read for every machine.
    '-incoming',
    'defer',
    // xen-save-devices-state writes no configuration section.
    '-global',
    'migration.send-configuration=off',
    '-chardev',
    `ringbuf,id=${qemuIds.serial},size=${serialRingBytes}`,
  ];
}

/** The order is the guest's order: first virtio-blk is vda, second is vdb. */
function deviceArgs(spec: QemuMachineSpec): string[] {
  const { role, sockets } = spec;
  const disk =
    role.kind === 'template'
      ? {
          driver: 'null-co',
          size: placeholderDiskBytes,
          'read-zeroes': true,
          'node-name': qemuIds.disk,
        }
      : { ...overlayNode(role.overlayPath, qemuIds.disk), backing: backingNode(role.layers) };
  const modules = {
    driver: 'raw',
    'read-only': true,
    file: { driver: 'file', filename: spec.modulesPath, 'read-only': true },
  };
  return [
    '-serial',
    `chardev:${qemuIds.serial}`,
    '-device',
    json({ driver: 'virtio-serial-device', id: 'ports' }),
    ...port('ctl', qemuIds.ctlPort, sockets.ctl),
    ...port('data', qemuIds.dataPort, sockets.data),
    '-blockdev',
    json(disk),
    '-device',
    // A full host is an error that the guest sees. By default QEMU would freeze the machine until
    // somebody makes room and says so.
    json({ driver: 'virtio-blk-device', drive: qemuIds.disk, werror: 'report', rerror: 'report' }),
    '-blockdev',
    json({ ...modules, 'node-name': 'modules' }),
    '-device',
    json({ driver: 'virtio-blk-device', drive: 'modules' }),
    '-netdev',
    json(
      spec.networkKind === 'tap'
        ? { type: 'tap', id: 'net0', ifname: spec.tapName, script: 'no', downscript: 'no', vhost: false }
        : { type: 'user', id: 'net0', restrict: spec.networkRestricted },
    ),
    '-device',
    json({ driver: 'virtio-net-device', netdev: 'net0', mac: guestMac }),
    '-device',
    json({ driver: 'virtio-rng-device' }),
  ];
}

/** The disk that a machine writes to, without what is below it. */
export function overlayNode(path: string, node: string): Record<string, unknown> {
  return { ...overlayOptions(node), file: { driver: 'file', filename: path, 'node-name': fileNode(node) } };
}

/** The same as QEMU knows it: what a change of it has to say again, with what it is to stand above from then on. */
export function knownOverlayNode(node: string, backing: string): Record<string, unknown> {
  return { ...overlayOptions(node), file: fileNode(node), backing };
}

function overlayOptions(node: string): Record<string, unknown> {
  return {
    driver: 'qcow2',
    'node-name': node,
    discard: 'unmap',
    // A machine does not survive its host, so a guest's flush need not reach the platter;
    // whoever saves a disk for good flushes it then.
    cache: { 'no-flush': true },
  };
}

function fileNode(node: string): string {
  return `${node}-file`;
}

/** Every layer is named with its format: a guest must not choose either by what it writes into one. */
export function backingNode({ backingPath, frozen = [] }: DiskLayers): Record<string, unknown> {
  const file = (filename: string) => ({ driver: 'file', filename, 'read-only': true });
  let node: Record<string, unknown> = { driver: 'raw', 'read-only': true, file: file(backingPath) };
  for (const path of frozen) node = { driver: 'qcow2', 'read-only': true, file: file(path), backing: node };
  return node;
}

function port(name: string, id: string, path: string): string[] {
  return [
    '-chardev',
    `socket,id=c_${name},path=${escapeComma(path)},server=on,wait=off`,
    // The id is what makes QEMU send VSERPORT_CHANGE.
    '-device',
    json({ driver: 'virtserialport', id, chardev: `c_${name}`, name }),
  ];
}

/** What a VMM is wrapped in before it runs. */
export interface Confinement {
  netnsPath?: string | undefined;
  runAs?: RunAs | undefined;
  /** Group that may open /dev/kvm, kept where KVM is used. */
  kvmGid?: number | undefined;
  /** Killed by the kernel when we die: for what is of no use without us, a template's build or a probe. */
  endsWithUs?: boolean;
}

/**
 * Puts the programs before `argv` that enter the network namespace and drop every privilege. Each
 * executes the next, so that the pid stays that of the VMM. Pure.
 */
export function confineArgv(argv: readonly string[], confinement: Confinement): string[] {
  const wrapped: string[] = [];
  if (confinement.netnsPath !== undefined) wrapped.push('nsenter', `--net=${confinement.netnsPath}`, '--');
  const { runAs, kvmGid } = confinement;
  if (runAs !== undefined || confinement.endsWithUs) wrapped.push('setpriv');
  if (runAs !== undefined) {
    const groups = [...(kvmGid === undefined ? [] : [kvmGid]), ...(runAs.groups ?? [])];
    wrapped.push(
      `--reuid=${runAs.uid}`,
      `--regid=${runAs.gid}`,
      groups.length === 0 ? '--clear-groups' : `--groups=${groups.join(',')}`,
      '--bounding-set=-all',
      '--inh-caps=-all',
      '--no-new-privs',
    );
  }
  if (confinement.endsWithUs) wrapped.push('--pdeathsig=KILL');
  if (wrapped.includes('setpriv')) wrapped.push('--');
  return [...wrapped, ...argv];
}

/** QEMU's option strings double a comma that is meant literally. */
function escapeComma(text: string): string {
  return text.replaceAll(',', ',,');
}

function json(value: Record<string, unknown>): string {
  return JSON.stringify(value);
}
