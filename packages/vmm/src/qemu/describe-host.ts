/** Finds out, once for each driver, what QEMU, guest and accelerator this host gives. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { runProgram } from '../process/run-program.js';
import { type Acceleration, deviceModelVersion } from './argv.js';
import { type GuestAssets, readGuestAssets } from './assets.js';
import type { QemuContext } from './context.js';
import { measureTscKhz } from './measure-tsc.js';
import { probeKvm, readKvmGroup } from './probe-kvm.js';

/** Options of {@link createQemuDriver}. */
export interface QemuDriverOptions {
  /** Folder made by `tools/guest-assets/build.sh`. */
  assets: string;
  /** Folder for what is measured once a boot. */
  stateFolder: string;
  /** `auto`: KVM where a guest really starts on it. Default `auto`. */
  kvm?: 'auto' | 'never';
  /**
   * With KVM, QEMU's name of the processor that guests see: a snapshot can then be restored by every host that has all of it.
   * Default `host`: this host's own, with all it can (docs/rfd/0004-kvm-settings.md).
   */
  cpuModel?: string;
  /** Default `qemu-system-x86_64`. */
  qemuBinary?: string;
}

/** Describes. Throws {@link VmmError} when QEMU or the assets are missing. */
export async function describeHost(options: QemuDriverOptions): Promise<QemuContext> {
  const binary = options.qemuBinary ?? 'qemu-system-x86_64';
  const [assets, versionText] = await Promise.all([
    readGuestAssets(options.assets),
    runProgram([binary, '--version'], 20_000),
  ]);
  const version = /version (\S+(?: \([^)]*\))?)/.exec(versionText)?.[1] ?? versionText.split('\n')[0]!;
  const { acceleration, reason } = await chooseAcceleration(options, binary, version, assets);
  const hostCpu = acceleration.kind === 'kvm' ? await readHostCpu(options.cpuModel) : '';
  return {
    binary,
    version,
    assets,
    acceleration,
    reason,
    kvmGid: acceleration.kind === 'kvm' ? await readKvmGroup() : undefined,
    strictMemory: (await readFile('/proc/sys/vm/overcommit_memory', 'utf8').catch(() => '')).trim() === '2',
    fingerprint: fingerprintOf(version, assets, acceleration, hostCpu),
    snapshotFingerprint: snapshotFingerprintOf(version, acceleration, hostCpu),
  };
}

async function chooseAcceleration(
  options: QemuDriverOptions,
  binary: string,
  version: string,
  assets: GuestAssets,
): Promise<{ acceleration: Acceleration; reason: string }> {
  const emulation = async (): Promise<Acceleration> => ({
    kind: 'tcg',
    tscKhz: await measureTscKhz(assets.measureTscPath, options.stateFolder),
  });
  let reason = 'KVM is switched off';
  if (options.kvm !== 'never') {
    const { stateFolder, cpuModel = 'host' } = options;
    const answer = await probeKvm({ binary, qemuVersion: version, assets, stateFolder, cpuModel, emulation });
    if (answer.cpuModel !== undefined) {
      return { acceleration: { kind: 'kvm', cpuModel: answer.cpuModel }, reason: answer.reason };
    }
    reason = answer.reason;
  }
  return { acceleration: await emulation(), reason };
}

/** A digest of everything that a template depends on besides its shape and network. Pure. */
export function fingerprintOf(
  qemuVersion: string,
  assets: Pick<GuestAssets, 'digests'>,
  acceleration: Acceleration,
  hostCpu: string,
): string {
  const { 'measure-tsc': _, ...digests } = assets.digests;
  const parts = [deviceModelVersion, qemuVersion, Object.entries(digests).sort(), acceleration, hostCpu];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

/**
 * A digest of everything that a snapshot depends on besides its shape and network: it brings its kernel and agent with it.
 * The emulated clock's rate is measured anew with each boot of the host, and what differs is within its error. Pure.
 */
export function snapshotFingerprintOf(
  qemuVersion: string,
  acceleration: Acceleration,
  hostCpu: string,
): string {
  const model = acceleration.kind === 'kvm' ? acceleration.cpuModel : '';
  const parts = [deviceModelVersion, qemuVersion, acceleration.kind, model, hostCpu];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

/**
 * What of this host's processor a guest on KVM has seen, and cannot go on without. A named one was not seen, but for the
 * vendor, which KVM always shows. Not the microcode's revision: an update that takes nothing away is no other processor.
 */
async function readHostCpu(cpuModel = 'host'): Promise<string> {
  const text = await readFile('/proc/cpuinfo', 'utf8');
  const field = (name: string): string => new RegExp(`^${name}\\s*: (.*)$`, 'm').exec(text)?.[1] ?? '';
  const seen = cpuModel === 'host' ? ['model name', 'stepping', 'flags'] : ['vendor_id'];
  return seen.map(field).join('/');
}
