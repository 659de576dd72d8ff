/**
 * One running QEMU machine. Made by a restore or by adoption.
 *
 * States: running -> (guest asked to stop: QEMU stands still, we read why) -> gone. A guest that asked for a reboot
 * stands still until somebody ends it. `ended` resolves on entering gone and never before the process is. Detached: we know nothing of it any more.
 * If we die, the process goes on; `adopt` makes this object anew from the handle.
 */
import {
  type GuestPorts,
  type Machine,
  type MachineEnd,
  MachineEndedError,
  type MachineHandle,
  type MachineOrigin,
  type MachinePausing,
  type MachineSnapshotting,
  type RestoreTimings,
  type SavedDisk,
  type SavedSnapshot,
  type SnapshotRequest,
  VmmError,
} from '../driver.js';
import { startGuard } from '../guarded.js';
import { explainEnd, panicLine } from '../machine-end.js';
import type { OomWatch } from '../process/oom-watch.js';
import { isRunning, killProcess, waitUntilGone } from '../process/process-identity.js';
import { readTail, type VmmProcess } from '../process/vmm-process.js';
import { snapshotPaths } from '../snapshot-files.js';
import { qemuIds, serialRingBytes } from './argv.js';
import { isDiskTaken } from './freeze-disk.js';
import type { QmpClient, QmpEvent } from './qmp-client.js';
import { restack } from './restack.js';
import { saveDisk } from './save-disk.js';
import { saveSnapshot } from './save-snapshot.js';

/** What a machine is made of besides its handle. */
export interface QemuMachineParts {
  ports: GuestPorts;
  stderrPath: string;
  qmp: QmpClient;
  timings: RestoreTimings | undefined;
  oomWatch: OomWatch;
  /** Our child; undefined for an adopted process, whose end is found by its connection and polling. */
  process: VmmProcess | undefined;
}

/** A killed process is gone in milliseconds; one in an uninterruptible wait for a disk is not. */
const goneTimeoutMs = 30_000;
/** The memory of the largest machine on a slow disk; it ends what hangs. */
const saveTimeoutMs = 300_000;
/** How long QEMU may take to hand over what the guest printed, after the guest has stopped. */
const lastWordsTimeoutMs = 2000;

/** The same, and to write all that the disk's caches hold. */
const standStillTimeoutMs = 60_000;
/** Printed by a kernel that powers its machine off (kernel/reboot.c); one that resets it says something else, or nothing. */
const powerDownLine = /reboot: Power down/;

/** See {@link Machine}. */
export class QemuMachine implements Machine {
  #handle: MachineHandle;
  readonly ports: GuestPorts;
  readonly timings: RestoreTimings | undefined;
  readonly ended: Promise<MachineEnd>;
  readonly pausing: MachinePausing;
  readonly snapshotting?: MachineSnapshotting;
  readonly #parts: QemuMachineParts;
  readonly #stopListening: () => void;
  #resolveEnded!: (end: MachineEnd) => void;
  #requested = false;
  #guestReason: string | undefined;
  #end: MachineEnd | undefined;
  #detached = false;
  #serialTail = Buffer.alloc(0);
  #portClosed = false;
  /** It is being saved, or put above other layers. */
  #saving = false;
  readonly #portListeners = new Set<() => void>();
  #resetAsked = false;
  readonly #resetListeners = new Set<() => void>();

  constructor(handle: MachineHandle, parts: QemuMachineParts) {
    this.#handle = handle;
    this.ports = parts.ports;
    this.timings = parts.timings;
    this.#parts = parts;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.pausing = {
      pause: async () => void (await this.#execute('stop')),
      resume: async () => void (await this.#execute('cont')),
    };
    if (handle.origin) {
      this.snapshotting = {
        save: (request, signal) => this.#save(request, signal),
        restack: (frozen) => this.#restack(frozen),
        saveDisk: (request, signal) => this.#saveDisk(request, signal),
        isDiskTaken: (folder) => isDiskTaken(folder, handle.folder),
      };
    }
    parts.oomWatch.enter();
    this.#stopListening = parts.qmp.onEvent((event) => this.#observe(event));
    void this.#watch();
  }

  get handle(): MachineHandle {
    return this.#handle;
  }

  onGuestPortClosed(listener: () => void): void {
    if (this.#portClosed) queueMicrotask(listener);
    else this.#portListeners.add(listener);
  }

  /** The guest has asked for a reboot, and the machine stands still. */
  get waitsForReboot(): boolean {
    return this.#resetAsked;
  }

  /** The agent's port is closed; called by adoption, which has to ask, and by the event. */
  noteGuestPortClosed(): void {
    if (this.#portClosed || this.#detached) return;
    this.#portClosed = true;
    for (const listener of this.#portListeners) listener();
    this.#portListeners.clear();
  }

  onGuestReset(listener: () => void): void {
    this.#resetListeners.add(listener);
    if (this.#resetAsked) queueMicrotask(listener);
  }

  /** The guest has stopped for this reason; called by adoption for a guest that did so unseen, and by the event. */
  noteGuestStopped(reason: string): void {
    if (this.#guestReason !== undefined || this.#detached) return;
    if (reason === 'guest-reset') {
      void this.#standStill();
      return;
    }
    this.#guestReason = reason;
    void this.#readLastWordsAndKill();
  }

  /**
   * The guest has stopped and nobody heard why; called by adoption. Resolves when it is known whether the machine waits
   * for its reboot or ends.
   */
  async noteGuestStoppedUnseen(): Promise<void> {
    await this.#standStill((words) => powerDownLine.test(words));
  }

  async end(): Promise<void> {
    if (this.#detached) throw new Error('this machine was detached; adopt it to end it');
    if (this.#end === undefined) {
      // A guest that has stopped by itself keeps its own cause.
      this.#requested ||= this.#guestReason === undefined;
      killProcess(this.handle);
      if (!(await waitUntilGone(this.handle, goneTimeoutMs))) {
        throw new Error(
          `process ${this.handle.pid} of machine ${this.handle.id} was killed but does not end; it probably waits for the host's disk`,
        );
      }
    }
    await this.ended;
  }

  detach(): void {
    if (this.#detached || this.#end) return;
    this.#detached = true;
    this.#release();
  }

  async readSerialTail(maxBytes: number): Promise<string> {
    if (this.#end === undefined && !this.#detached) {
      await this.#pullSerial(lastWordsTimeoutMs).catch(() => {
        // The machine is ending; what was read before is what there is.
      });
    }
    return this.#serialTail.subarray(Math.max(0, this.#serialTail.length - maxBytes)).toString('utf8');
  }

  async #execute(command: string): Promise<unknown> {
    if (this.#end) throw new MachineEndedError(this.#end);
    try {
      return await this.#parts.qmp.execute(command);
    } catch (error) {
      if (!this.#detached && !isRunning(this.handle)) throw new MachineEndedError(await this.ended);
      throw error;
    }
  }

  async #save(request: SnapshotRequest, signal: AbortSignal): Promise<SavedSnapshot> {
    return this.#exclusively(request.folder, signal, async (handle, guarded) => {
      const { snapshot, origin } = await saveSnapshot({ handle, qmp: this.#parts.qmp }, request, guarded);
      return { saved: snapshot, origin };
    });
  }

  async #saveDisk(request: Omit<SnapshotRequest, 'after'>, signal: AbortSignal): Promise<SavedDisk> {
    return this.#exclusively(request.folder, signal, async (handle, guarded) => {
      const saved = await saveDisk({ handle, qmp: this.#parts.qmp }, request, guarded);
      return { saved, origin: { ...handle.origin, disk: saved.disk } };
    });
  }

  /** One save at a time; the handle says afterwards which disks lie below the machine's own. */
  async #exclusively<T>(
    folder: string,
    signal: AbortSignal,
    save: (
      handle: MachineHandle & { origin: MachineOrigin },
      signal: AbortSignal,
    ) => Promise<{ saved: T; origin: MachineOrigin }>,
  ): Promise<T> {
    if (this.#end) throw new MachineEndedError(this.#end);
    const { origin } = this.#handle;
    if (!origin || this.#saving) {
      throw new VmmError('save-failed', `machine ${this.#handle.id} is being saved already`);
    }
    this.#saving = true;
    const guard = startGuard(signal, saveTimeoutMs, `the save of machine ${this.#handle.id}`);
    try {
      const { saved, origin: after } = await save({ ...this.#handle, origin }, guard.signal);
      this.#handle = { ...this.#handle, origin: after };
      return saved;
    } catch (error) {
      if (!this.#detached && !isRunning(this.#handle)) throw new MachineEndedError(await this.ended);
      // It failed after the switch to the new disk.
      if (await isDiskTaken(folder, this.#handle.folder)) {
        const frozen = [...origin.disk.frozen, snapshotPaths(folder).disk];
        this.#handle = { ...this.#handle, origin: { ...origin, disk: { ...origin.disk, frozen } } };
      }
      throw error;
    } finally {
      this.#saving = false;
      guard.dispose();
    }
  }

  async #restack(frozen: readonly string[]): Promise<void> {
    if (this.#end) throw new MachineEndedError(this.#end);
    const { origin } = this.#handle;
    if (!origin || this.#saving)
      throw new VmmError('disk-failed', `machine ${this.#handle.id} is being saved`);
    this.#saving = true;
    try {
      await restack({ handle: { ...this.#handle, origin }, qmp: this.#parts.qmp }, frozen);
      this.#handle = {
        ...this.#handle,
        origin: { ...origin, disk: { ...origin.disk, frozen: [...frozen] } },
      };
    } catch (cause) {
      if (!this.#detached && !isRunning(this.#handle)) throw new MachineEndedError(await this.ended);
      throw new VmmError(
        'disk-failed',
        `the disk of machine ${this.#handle.id} could not be put above merged layers: ${(cause as Error).message}`,
        { cause },
      );
    } finally {
      this.#saving = false;
    }
  }

  #observe({ event, data }: QmpEvent): void {
    if (event === 'SHUTDOWN' && data['guest'] === true) this.noteGuestStopped(String(data['reason']));
    else if (event === 'VSERPORT_CHANGE' && data['id'] === qemuIds.ctlPort && data['open'] === false) {
      // Only ctl: the agent closes and reopens `data` with every new connection.
      this.noteGuestPortClosed();
    }
  }

  /**
   * A kernel that panics resets its machine as well, and is not to be started again. QEMU answers only when all of the
   * disk is written: it may be ended then without a loss.
   */
  async #standStill(hasPoweredOff: (words: string) => boolean = () => false): Promise<void> {
    await this.#pullSerial(standStillTimeoutMs).catch(() => {
      // It is ending; why will be known.
    });
    if (this.#end !== undefined || this.#detached || this.#resetAsked) return;
    const words = this.#serialTail.toString('utf8');
    if (panicLine.test(words)) this.#guestReason = 'guest-panic';
    else if (hasPoweredOff(words)) this.#guestReason = 'guest-shutdown';
    if (this.#guestReason !== undefined) {
      killProcess(this.handle);
      return;
    }
    this.#resetAsked = true;
    for (const listener of this.#resetListeners) listener();
  }

  async #readLastWordsAndKill(): Promise<void> {
    await this.#pullSerial(lastWordsTimeoutMs).catch(() => {
      // Without its last words the end is still an end.
    });
    killProcess(this.handle);
  }

  /** Moves what the ring holds to our own tail: reading empties the ring. */
  async #pullSerial(timeoutMs: number): Promise<void> {
    const text = await this.#parts.qmp.execute<string>(
      'ringbuf-read',
      { device: qemuIds.serial, size: serialRingBytes, format: 'base64' },
      timeoutMs,
    );
    const all = Buffer.concat([this.#serialTail, Buffer.from(text, 'base64')]);
    this.#serialTail = all.subarray(Math.max(0, all.length - serialRingBytes));
  }

  async #watch(): Promise<void> {
    const exit = await this.#parts.process?.exited;
    if (exit === undefined) {
      // The kernel closes the connection with the process. Should it close otherwise, we poll.
      await this.#parts.qmp.closed;
      while (!this.#detached && !(await waitUntilGone(this.handle, 1000)));
    }
    if (this.#detached) return;
    const hostKilledForMemory = this.#parts.oomWatch.hasKilledLately();
    const stderrTail = await readTail(this.#parts.stderrPath, 2000);
    this.#end = explainEnd({
      requested: this.#requested,
      guestReason: this.#guestReason,
      exit,
      serialTail: this.#serialTail.toString('utf8'),
      stderrTail,
      hostKilledForMemory,
    });
    this.#release();
    this.#resolveEnded(this.#end);
  }

  #release(): void {
    this.#stopListening();
    this.#parts.qmp.close();
    this.#parts.process?.release();
    this.#parts.oomWatch.leave();
    this.#portListeners.clear();
    this.#resetListeners.clear();
  }
}
