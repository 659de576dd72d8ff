/** One guest of the fake driver: the agent's process, started or found again. */
import { existsSync, readFileSync } from 'node:fs';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type GuestPorts,
  type Machine,
  type MachineEnd,
  MachineEndedError,
  type MachineHandle,
  type MachineSnapshotting,
  type RestoreTimings,
  type SavedSnapshot,
  type SnapshotRequest,
  VmmError,
} from '../driver.js';
import type { Guard } from '../guarded.js';
import { explainEnd } from '../machine-end.js';
import { isRunning, killProcess, type ProcessIdentity, waitUntilGone } from '../process/process-identity.js';
import { readTail, startVmmProcess, type VmmProcess } from '../process/vmm-process.js';
import { confineArgv } from '../qemu/argv.js';
import { completeSnapshot, prepareDescription, snapshotPaths } from '../snapshot-files.js';
import { emptyFolder } from '../template-files.js';

/** Program that makes the pid namespace, and its name in /proc. */
const wrapperName = 'unshare';
const goneTimeoutMs = 10_000;

/** Paths in a fake machine's folder; the agent chooses the names of its sockets. */
export function fakeFiles(folder: string): GuestPorts & { console: string; root: string } {
  return {
    ctl: join(folder, 'ctl.sock'),
    data: join(folder, 'data.sock'),
    console: join(folder, 'console.log'),
    root: join(folder, 'root'),
  };
}

/** A started guest. */
export interface FakeGuest {
  process: VmmProcess;
  /** Ends it and everything in it; resolves when it is gone. Idempotent. */
  kill(): Promise<void>;
}

/** Starts the agent and waits until it listens. Throws what the guard fails with; nothing runs then. */
export async function startFakeGuest(
  options: { agentBinary: string; isolate: boolean; endsWithUs: boolean; folder: string },
  guard: Guard,
): Promise<FakeGuest> {
  const files = fakeFiles(options.folder);
  await mkdir(files.root, { recursive: true });
  const argv = [options.agentBinary, '--socket-dir', options.folder, '--root', files.root];
  // A pid namespace, so that all the agent started ends with it, as in a machine. Its process 1 is a
  // second wrapper: as process 1 the agent would take itself for that of a guest.
  const wrapper = [
    ...[wrapperName, '--pid', '--fork', '--kill-child', '--mount', '--mount-proc', '--'],
    ...[wrapperName, '--fork', '--kill-child', '--'],
  ];
  const isolated = options.isolate ? [...wrapper, ...argv] : argv;
  const started = await startVmmProcess(confineArgv(isolated, { endsWithUs: options.endsWithUs }), {
    stderrPath: files.console,
    cwd: options.folder,
    environment: process.env,
  });
  void started.exited.then(async ({ code, signal }) => {
    const said = await readTail(files.console, 1000);
    guard.fail(
      new VmmError('start-failed', `the guest agent ended (${signal ?? `status ${code}`}): ${said}`),
    );
  });
  const kill = async (): Promise<void> => {
    await killGuest(started.identity);
    await started.exited;
  };
  try {
    while (!(await canConnect(files.ctl))) await guard.race(sleep(2));
    return { process: started, kill };
  } catch (error) {
    await kill();
    throw error;
  }
}

/** See {@link Machine}. */
export class FakeMachine implements Machine {
  #handle: MachineHandle;
  readonly ports: GuestPorts;
  readonly timings: RestoreTimings | undefined;
  readonly ended: Promise<MachineEnd>;
  readonly snapshotting: MachineSnapshotting;
  readonly #process: VmmProcess | undefined;
  readonly #portListeners = new Set<() => void>();
  #requested = false;
  #detached = false;
  #gone = false;

  /** @param process Our child; undefined for an adopted one. */
  constructor(handle: MachineHandle, timings: RestoreTimings | undefined, process: VmmProcess | undefined) {
    this.#handle = handle;
    const { ctl, data } = fakeFiles(handle.folder);
    this.ports = { ctl, data };
    this.timings = timings;
    this.#process = process;
    this.snapshotting = {
      save: (request) => this.#save(request),
      isDiskTaken: async (folder) => existsSync(snapshotPaths(folder).disk),
      restack: (frozen) => this.#restack(frozen),
    };
    this.ended = this.#watch();
  }

  get handle(): MachineHandle {
    return this.#handle;
  }

  onGuestPortClosed(listener: () => void): void {
    this.#portListeners.add(listener);
  }

  /** A process has no power to cut: it never does. */
  onGuestReset(): void {}

  async end(): Promise<void> {
    if (this.#detached) throw new Error('this machine was detached; adopt it to end it');
    if (!this.#gone) {
      this.#requested = true;
      await killGuest(this.handle);
    }
    await this.ended;
  }

  detach(): void {
    if (this.#gone) return;
    this.#detached = true;
    this.#process?.release();
  }

  readSerialTail(maxBytes: number): Promise<string> {
    return readTail(fakeFiles(this.handle.folder).console, maxBytes);
  }

  /** Files only: what runs in a process of this host cannot be saved with them. */
  async #save({ folder, after }: SnapshotRequest): Promise<SavedSnapshot> {
    const begin = performance.now();
    const { origin } = this.handle;
    if (this.#gone) throw new MachineEndedError(await this.ended);
    if (!origin) throw new VmmError('save-failed', 'its handle is of an earlier version');
    try {
      await cp(fakeFiles(this.handle.folder).root, fakeFiles(folder).root, {
        recursive: true,
        verbatimSymlinks: true,
      });
      await writeFile(snapshotPaths(folder).state, origin.snapshotFingerprint, { mode: 0o400 });
      const { shape, networkKind, snapshotFingerprint } = origin;
      // Its disk is a folder, which was copied; its layers are files of words, one for each.
      const layer = snapshotPaths(folder).disk;
      if (after === 'go on') await writeFile(layer, `${layer}\n`, { mode: 0o444 });
      const frozen = after === 'go on' ? [...origin.disk.frozen, layer] : origin.disk.frozen;
      const disk = { ...origin.disk, frozen };
      const snapshot = { folder, shape, networkKind, snapshotFingerprint, disk };
      await prepareDescription(snapshot, ['state']);
      await completeSnapshot(folder);
      this.#handle = { ...this.#handle, origin: { ...origin, disk } };
      const totalMs = performance.now() - begin;
      return { ...snapshot, timings: { stillMs: 0, totalMs, dirtyBytes: 0 } };
    } catch (cause) {
      await emptyFolder(folder);
      throw new VmmError('save-failed', `the machine could not be saved: ${(cause as Error).message}`, {
        cause,
      });
    }
  }

  /** It stands above nothing: these must be there, and hold the words of those before. */
  async #restack(frozen: readonly string[]): Promise<void> {
    const { origin } = this.#handle;
    if (this.#gone) throw new MachineEndedError(await this.ended);
    if (!origin) throw new VmmError('disk-failed', 'its handle is of an earlier version');
    const words = async (paths: readonly string[]) =>
      (await Promise.all(paths.map((path) => readFile(path, 'utf8')))).join('');
    try {
      if ((await words(frozen)) !== (await words(origin.disk.frozen)))
        throw new Error('the layers hold something else');
    } catch (cause) {
      throw new VmmError('disk-failed', `its layers cannot be changed: ${(cause as Error).message}`, {
        cause,
      });
    }
    this.#handle = { ...this.#handle, origin: { ...origin, disk: { ...origin.disk, frozen: [...frozen] } } };
  }

  async #watch(): Promise<MachineEnd> {
    const exit = await this.#process?.exited;
    if (exit === undefined) {
      while (!this.#detached && !(await waitUntilGone(this.handle, 200)));
    }
    // Detached: nobody is told anything any more.
    if (this.#detached) return new Promise(() => {});
    this.#gone = true;
    for (const listener of this.#portListeners) listener();
    const consoleTail = await this.readSerialTail(2000);
    return explainEnd({
      requested: this.#requested,
      exit,
      serialTail: consoleTail,
      // An adopted one's console is a log, not an error.
      stderrTail: exit === undefined ? '' : consoleTail,
      hostKilledForMemory: false,
    });
  }
}

/** Kills process 1 of the pid namespace first, and all in it; the wrapper ends when they have. */
async function killGuest(identity: ProcessIdentity): Promise<void> {
  if (!isRunning(identity)) return;
  const children = readChildren(identity.pid);
  for (const pid of children) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has just ended by itself.
    }
  }
  const wrapped = children.length > 0 && readCommand(identity.pid) === wrapperName;
  if (wrapped && (await waitUntilGone(identity, 1000))) return;
  killProcess(identity);
  if (!(await waitUntilGone(identity, goneTimeoutMs))) {
    throw new Error(`process ${identity.pid} of a fake machine was killed but does not end`);
  }
}

function readChildren(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1');
    return text.split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

function readCommand(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'latin1').trim();
  } catch {
    return undefined;
  }
}

function canConnect(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
