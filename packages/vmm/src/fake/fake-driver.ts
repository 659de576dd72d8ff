/**
 * A driver without machines, for tests of everything above it: a "guest" is the guest agent itself,
 * as a process of this host that speaks the real protocol on unix sockets. It restores in
 * milliseconds, is adopted and killed like a machine, and fails where a test tells it to. A snapshot of one holds its files,
 * not its memory: its commands end with it.
 *
 * It isolates nothing but process ids (as root): never run anything untrusted in it.
 */
import { createHash } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import { access, chmod, cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type FreezeDiskRequest,
  type Machine,
  type MachineEnd,
  type MachineHandle,
  type MachineOrigin,
  type MergedLayer,
  type MergeRequest,
  type RestoreRequest,
  type Snapshot,
  type Template,
  type TemplateRequest,
  type VmmDriver,
  VmmError,
} from '../driver.js';
import { type Guard, startGuard } from '../guarded.js';
import { isRunning } from '../process/process-identity.js';
import { snapshotPaths } from '../snapshot-files.js';
import { completeTemplate, emptyFolder } from '../template-files.js';
import { type FakeGuest, FakeMachine, fakeFiles, startFakeGuest } from './fake-machine.js';

/** A moment at which a test can step in. */
export interface FakeStep {
  operation: 'describe' | 'buildTemplate' | 'restore' | 'mergeLayers' | 'freezeDisk' | 'adopt';
  /** `before`: nothing is started. `started`: the process runs. `after`: about to return. */
  phase: 'before' | 'started' | 'after';
  /** Counts the calls of this operation from 1. */
  call: number;
  /** Of the guest's process, where it runs: to kill it. */
  pid?: number;
}

/** Options of {@link createFakeDriver}. */
export interface FakeDriverOptions {
  /** The guest agent built for this host. */
  agentBinary: string;
  /** Called at every step. What it throws fails the operation there; while it waits, the operation waits. */
  intercept?: (step: FakeStep) => void | Promise<void>;
  /** Put each guest into a pid namespace, so that everything it started ends with it. Needs root, and is the default there. */
  isolate?: boolean;
}

const timeoutMs = 30_000;
/** Files of any of its guests are as good as any other's. */
const snapshotFingerprint = 'fake-1';

/** A driver whose machines are processes of the guest agent. */
export function createFakeDriver(options: FakeDriverOptions): VmmDriver {
  return new FakeDriver(options);
}

class FakeDriver implements VmmDriver {
  readonly #options: FakeDriverOptions;
  #fingerprint: string | undefined;
  readonly #calls = new Map<FakeStep['operation'], number>();

  constructor(options: FakeDriverOptions) {
    this.#options = options;
  }

  async describe() {
    await this.#enter('describe')('before');
    return {
      name: 'fake',
      version: '1',
      accelerator: 'fake' as const,
      reason: 'machines are processes of this host, without any isolation: for tests only',
      fingerprint: await this.#readFingerprint(),
      snapshotFingerprint,
    };
  }

  async #checkSource(from: Template | Snapshot): Promise<void> {
    if (isSnapshot(from)) {
      if (from.snapshotFingerprint !== snapshotFingerprint)
        throw new VmmError('bad-snapshot', `the snapshot ${from.folder} is of another driver`);
    } else if (from.fingerprint !== (await this.#readFingerprint()))
      throw new VmmError('bad-template', `the template ${from.folder} is of another guest agent`);
  }

  async #readFingerprint(): Promise<string> {
    if (this.#fingerprint !== undefined) return this.#fingerprint;
    let agent: Buffer;
    try {
      agent = await readFile(this.#options.agentBinary);
    } catch (error) {
      throw new VmmError(
        'vmm-missing',
        `the guest agent ${this.#options.agentBinary} cannot be read; build it (cargo build --release in guest-agent)`,
        { cause: error },
      );
    }
    this.#fingerprint = `fake-${createHash('sha256').update(agent).digest('hex')}`;
    return this.#fingerprint;
  }

  async buildTemplate(request: TemplateRequest, signal: AbortSignal): Promise<Template> {
    const step = this.#enter('buildTemplate');
    const guard = startGuard(signal, timeoutMs, `the build of the template ${request.folder}`);
    const build = join(request.folder, 'build');
    let guest: FakeGuest | undefined;
    try {
      const fingerprint = await this.#readFingerprint();
      await guard.race(step('before'));
      await mkdir(build, { recursive: true });
      await chmod(request.folder, 0o755);
      guest = await this.#start(build, guard, true);
      await guard.race(step('started', guest));
      await guard.race(request.warm(fakeFiles(build), guard.signal));
      await guest.kill();
      await rm(build, { recursive: true });
      await writeFile(join(request.folder, 'state'), fingerprint, { mode: 0o444 });
      await step('after');
      const template: Template = {
        folder: request.folder,
        shape: request.shape,
        networkKind: request.network.kind,
        fingerprint,
      };
      await completeTemplate(template, ['state']);
      return template;
    } catch (error) {
      await guest?.kill();
      await emptyFolder(request.folder);
      throw asVmmError(error, 'template-failed');
    } finally {
      guard.dispose();
    }
  }

  async restore(request: RestoreRequest, signal: AbortSignal): Promise<Machine> {
    const step = this.#enter('restore');
    const guard = startGuard(signal, timeoutMs, `the start of machine ${request.id}`);
    const begin = performance.now();
    let guest: FakeGuest | undefined;
    try {
      const { from, disk } = request;
      await this.#checkSource(from);
      await guard.race(step('before'));
      // A machine without its template or its disk does not start, as with a real one.
      await readFile(join(from.folder, 'state'));
      await requireFile(disk.backingPath);
      for (const layer of disk.frozen ?? []) await requireFile(layer);
      await mkdir(request.folder, { recursive: true });
      await chmod(request.folder, 0o700);
      if (isSnapshot(from) && !disk.kept) {
        const copy = { recursive: true, verbatimSymlinks: true };
        await cp(fakeFiles(from.folder).root, fakeFiles(request.folder).root, copy);
      }
      const diskMs = performance.now() - begin;
      guest = await this.#start(request.folder, guard, false);
      await guard.race(step('started', guest));
      const processMs = performance.now() - begin;
      const handle: MachineHandle = {
        driver: 'fake',
        id: request.id,
        ...guest.process.identity,
        folder: request.folder,
        origin: originOf(request),
      };
      if (request.beforeRun) await guard.race(request.beforeRun(handle));
      await guard.race(step('after', guest));
      return new FakeMachine(handle, { diskMs, processMs, loadMs: performance.now() - begin }, guest.process);
    } catch (error) {
      await guest?.kill();
      if (!request.disk.kept) await emptyFolder(request.folder);
      throw asVmmError(error, 'start-failed');
    } finally {
      guard.dispose();
    }
  }

  /** Its layers are files of words. */
  async mergeLayers({ layers, folder, pace }: MergeRequest, signal: AbortSignal): Promise<MergedLayer> {
    const step = this.#enter('mergeLayers');
    try {
      await step('before');
      let merged = '';
      for (const layer of layers) {
        signal.throwIfAborted();
        const words = await readFile(layer, 'utf8');
        merged += words;
        await pace?.(words.length);
      }
      await writeFile(snapshotPaths(folder).disk, merged, { mode: 0o444 });
      await step('after');
      return { bytes: merged.length };
    } catch (cause) {
      await emptyFolder(folder);
      if (cause instanceof VmmError) throw cause;
      const code = signal.aborted ? 'aborted' : 'disk-failed';
      throw new VmmError(code, `layers could not be merged: ${(cause as Error).message}`, { cause });
    }
  }

  /** The files were copied when it was saved: only a layer of words is missing. */
  async freezeDisk({ folder, beforeSwitch }: FreezeDiskRequest): Promise<void> {
    const step = this.#enter('freezeDisk');
    const layer = snapshotPaths(folder).disk;
    try {
      await step('before');
      if (existsSync(layer)) return;
      await beforeSwitch?.();
      await step('after');
      await writeFile(layer, `${layer}\n`, { mode: 0o444 });
    } catch (error) {
      throw asVmmError(error, 'save-failed');
    }
  }

  async adopt(handle: MachineHandle): Promise<Machine | MachineEnd> {
    const step = this.#enter('adopt');
    await step('before');
    if (!isRunning(handle)) {
      return { cause: 'found-gone', detail: 'the process ended while nobody was watching' };
    }
    const machine = new FakeMachine(handle, undefined, undefined);
    await step('after', { process: { identity: handle } });
    return machine;
  }

  async close(): Promise<void> {}

  #start(folder: string, guard: Guard, endsWithUs: boolean): Promise<FakeGuest> {
    const isolate = this.#options.isolate ?? process.getuid?.() === 0;
    return startFakeGuest({ agentBinary: this.#options.agentBinary, isolate, endsWithUs, folder }, guard);
  }

  /** Counts a call and gives the function that reports its steps. */
  #enter(operation: FakeStep['operation']) {
    const call = (this.#calls.get(operation) ?? 0) + 1;
    this.#calls.set(operation, call);
    return async (
      phase: FakeStep['phase'],
      guest?: { process: { identity: { pid: number } } },
    ): Promise<void> => {
      const pid = guest?.process.identity.pid;
      await this.#options.intercept?.({ operation, phase, call, ...(pid === undefined ? {} : { pid }) });
    };
  }
}

function isSnapshot(from: Template | Snapshot): from is Snapshot {
  return 'disk' in from;
}

function originOf({ from, disk }: RestoreRequest): MachineOrigin {
  const { backingPath, frozen = [], sizeBytes } = disk;
  return {
    memoryPath: '',
    modulesPath: '',
    shape: from.shape,
    networkKind: from.networkKind,
    snapshotFingerprint,
    disk: { backingPath, frozen, sizeBytes },
  };
}

async function requireFile(path: string): Promise<void> {
  try {
    await access(path, constants.R_OK);
  } catch (error) {
    throw new VmmError('disk-failed', `the rootfs ${path} cannot be read`, { cause: error });
  }
}

function asVmmError(error: unknown, code: 'template-failed' | 'start-failed' | 'save-failed'): VmmError {
  return error instanceof VmmError ? error : new VmmError(code, (error as Error).message, { cause: error });
}
