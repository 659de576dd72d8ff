/**
 * Finds out whether KVM really runs our guest: a device that opens can still be unable to, or be slower than
 * emulation, and `-cpu host` can fail on a register this host does not virtualise. Called when the QEMU driver
 * describes the host; the answer is kept for this boot.
 */
import { constants, type Stats } from 'node:fs';
import { access, mkdir, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { VmmError } from '../driver.js';
import { startGuard } from '../guarded.js';
import { readBootId } from '../process/process-identity.js';
import type { Acceleration } from './argv.js';
import { qemuIds } from './argv.js';
import type { GuestAssets } from './assets.js';
import { endLaunched, type LaunchedQemu, launchQemu, qemuFiles } from './launch.js';

/** A guest boots in well under a second on a working KVM. One that takes longer has to be faster than an emulated one. */
const patienceMs = 2000;
/**
 * Longest probe: a KVM that is itself emulated takes half a minute for a boot (docs/rfd/0004-kvm-settings.md). Less than the
 * three minutes that `up` gives the node agent for its start.
 */
const probeTimeoutMs = 120_000;

/**
 * What to try, best first. Where a host cannot virtualise MSR_IA32_ARCH_CAPABILITIES QEMU ends at once
 * with an error, and goes without it. A guest that hangs would hang with both.
 */
const hostModels = ['host', 'host,-arch-capabilities'];

/** Answer of the probe. */
export interface KvmAnswer {
  /** Undefined: not usable. */
  cpuModel?: string;
  reason: string;
}

/** Everything the answer depends on; another key asks again. */
export interface KvmProbeKey {
  bootId: string;
  qemuVersion: string;
  kernel: string;
  cpuModels: string[];
}

/** What is asked, and of which QEMU. */
export interface KvmProbe {
  binary: string;
  qemuVersion: string;
  assets: GuestAssets;
  /** The answer is kept there. */
  stateFolder: string;
  /** QEMU's name of the processor that guests are to see; `host`: this host's. */
  cpuModel: string;
  /** What it is compared with where it is slow. */
  emulation: () => Promise<Acceleration>;
  /** Default `/dev/kvm`. */
  device?: string;
}

/** Probes, or gives the kept answer. Never throws for a KVM that does not work: that is an answer. */
export async function probeKvm(probe: KvmProbe): Promise<KvmAnswer> {
  const unusable = await findDeviceProblem(probe.device ?? '/dev/kvm');
  if (unusable !== undefined) return { reason: unusable };
  const { assets, qemuVersion, stateFolder } = probe;
  const key: KvmProbeKey = {
    bootId: await readBootId(),
    qemuVersion,
    kernel: assets.digests['initramfs.cpio'] ?? '',
    cpuModels: modelsOf(probe.cpuModel),
  };
  const path = join(stateFolder, 'kvm-probe.json');
  const kept = await readKept(path, key);
  if (kept) return kept;
  await mkdir(stateFolder, { recursive: true });
  const answer = await tryModels(probe, key.cpuModels);
  await writeFile(path, JSON.stringify({ key, answer }));
  return answer;
}

/** A host that lacks a part of a named processor shall not run it without. */
function modelsOf(cpuModel: string): string[] {
  return cpuModel === 'host' ? hostModels : [`${cpuModel},enforce`];
}

/** Group whose members may open the device, where others may not; undefined where all may, or none. */
export async function readKvmGroup(device = '/dev/kvm'): Promise<number | undefined> {
  try {
    const file = await stat(device);
    return mayAll(file) || !mayGroup(file) ? undefined : file.gid;
  } catch {
    return undefined;
  }
}

const mayAll = ({ mode }: Stats): boolean => (mode & 0o006) === 0o006;
/** Root's own group is none to give to a machine. */
const mayGroup = ({ mode, gid }: Stats): boolean => (mode & 0o060) === 0o060 && gid !== 0;

async function findDeviceProblem(device: string): Promise<string | undefined> {
  try {
    await access(device, constants.R_OK | constants.W_OK);
    const file = await open(device, 'r+');
    await file.close();
    const found = await stat(device);
    if (process.getuid?.() === 0 && !mayAll(found) && !mayGroup(found)) {
      return `${device} is open to root alone, and machines run as users of their own: chgrp kvm ${device} && chmod 660 ${device}`;
    }
    return undefined;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT') return `this host has no ${device}`;
    if (code === 'EACCES' || code === 'EPERM') return `${device} may not be opened by this user`;
    return `${device} cannot be opened (${code})`;
  }
}

async function tryModels(
  { binary, assets, stateFolder, emulation }: KvmProbe,
  cpuModels: string[],
): Promise<KvmAnswer> {
  const problems: string[] = [];
  // Of a fixed name, so that what a killed probe left is removed by the next.
  const folder = join(stateFolder, 'probe');
  for (const cpuModel of cpuModels) {
    const found = await raceEmulation(
      (signal) => startGuest(binary, assets, folder, { kind: 'kvm', cpuModel }, signal),
      async (signal) => startGuest(binary, assets, `${folder}-tcg`, await emulation(), signal),
    );
    if (found === undefined) return { cpuModel, reason: `a guest has started on KVM with -cpu ${cpuModel}` };
    problems.push(`-cpu ${cpuModel}: ${found.message.split('\n')[0]}`);
    if (found instanceof VmmError && found.code === 'timeout') break;
  }
  return { reason: `no guest starts on KVM (${problems.join('; ')})` };
}

type Start = (signal: AbortSignal) => Promise<Error | undefined>;

/**
 * Starts a guest on KVM and, where that has not come up after {@link patienceMs}, an emulated one beside it; who is first
 * wins. Resolves with what is wrong with KVM, if anything.
 */
export async function raceEmulation(
  onKvm: Start,
  emulated: Start,
  patience = patienceMs,
): Promise<Error | undefined> {
  const begin = performance.now();
  const kvm = new AbortController();
  const emulation = new AbortController();
  let slower: Error | undefined;
  const first = onKvm(kvm.signal).finally(() => emulation.abort());
  const second = (async () => {
    try {
      await sleep(patience, undefined, { signal: emulation.signal });
      if ((await emulated(emulation.signal)) !== undefined) return;
    } catch {
      // KVM was first, or emulation cannot be had: then there is nothing to compare with.
      return;
    }
    const seconds = Math.round((performance.now() - begin) / 1000);
    slower = new VmmError('timeout', `it had not started after ${seconds} s, when an emulated one had`);
    kvm.abort();
  })();
  const [problem] = await Promise.all([first, second]);
  return problem && (slower ?? problem);
}

/** Boots a small guest until its agent is up; gives what went wrong, if anything. */
async function startGuest(
  binary: string,
  assets: GuestAssets,
  folder: string,
  acceleration: Acceleration,
  signal: AbortSignal,
): Promise<Error | undefined> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder);
  const guard = startGuard(signal, probeTimeoutMs, 'the start of a guest');
  let launched: LaunchedQemu | undefined;
  try {
    const files = qemuFiles(folder);
    const memoryPath = join(folder, 'memory');
    await writeFile(memoryPath, '');
    launched = await launchQemu(
      {
        binary,
        id: 'probe',
        acceleration,
        shape: { vcpus: 1, memoryMiB: 256 },
        networkKind: 'user',
        networkRestricted: true,
        memoryPath,
        modulesPath: assets.modulesPath,
        sockets: files,
        role: {
          kind: 'template',
          kernelPath: assets.kernelPath,
          initramfsPath: assets.initramfsPath,
          serialPath: join(folder, 'serial.log'),
        },
      },
      { endsWithUs: true },
      { folder, files },
      guard,
      () => 'start-failed',
    );
    const { qmp } = launched;
    await guard.race(
      new Promise<void>((resolve) => {
        qmp.onEvent(({ event, data }) => {
          if (event === 'VSERPORT_CHANGE' && data['id'] === qemuIds.ctlPort && data['open'] === true)
            resolve();
        });
      }),
    );
    return undefined;
  } catch (error) {
    return error as Error;
  } finally {
    if (launched) await endLaunched(launched.process, launched.qmp);
    guard.dispose();
    await rm(folder, { recursive: true, force: true });
  }
}

async function readKept(path: string, key: KvmProbeKey): Promise<KvmAnswer | undefined> {
  try {
    const kept = JSON.parse(await readFile(path, 'utf8')) as { key?: KvmProbeKey; answer?: KvmAnswer };
    const same = JSON.stringify(kept.key) === JSON.stringify(key);
    return same && typeof kept.answer?.reason === 'string' ? kept.answer : undefined;
  } catch {
    return undefined;
  }
}
