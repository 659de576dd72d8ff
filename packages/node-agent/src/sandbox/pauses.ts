/**
 * The pauses of one sandbox: pausing -> paused -> resuming, and the requests that wait meanwhile. Owned by `Sandbox`, which
 * has the machine; what is saved when, and what a crash leaves, is in `pause-machine.ts` and `resume-machine.ts`.
 *
 * Invariant: a machine of the sandbox and a record that says `paused` are together only while that machine stands
 * still, to be ended; a new one is made only after it is gone.
 */
import { type Machine, MachineEndedError } from '@sandlot/vmm';
import { GuestPausedError } from '../guest/channel.js';
import type { SandboxNetwork } from '../network/network.js';
import { freezePausedDisk, isPausedDiskFrozen } from './checkpoint-paused.js';
import { SandboxConflictError } from './conflict.js';
import { pauseMachine, undoPause } from './pause-machine.js';
import { neededSnapshots } from './record.js';
import type { RecordOwner } from './record-progress.js';
import { resumeMachine, takeUpMachine } from './resume-machine.js';
import type { StartedParts, StartParts } from './start-parts.js';
import type { UndoStack } from './undo-stack.js';
import { Waiters } from './waiters.js';

/** A request waits so long for a sandbox that is paused; there may be no room for it. */
const wakeTimeoutMs = 120_000;

/** What the sandbox does for its pauses. */
export interface PausesHost extends RecordOwner {
  readonly parts: StartParts;
  /** Aborted when the sandbox is to end. */
  readonly signal: AbortSignal;
  readonly machineUndo: UndoStack;
  /** The machine that runs; undefined while there is none. */
  started(): StartedParts | undefined;
  /** The network is there, or is made anew: it did not outlive a restart of the host. */
  network(): Promise<SandboxNetwork>;
  /** It is ours, and nobody ends it. */
  isPresent(machine: Machine): boolean;
  /** Nobody ends the sandbox, and we have not let go of it. */
  isOurs(): boolean;
  /** Lets go of the machine that stands still, and ends it. */
  endMachine(reason: GuestPausedError): Promise<void>;
  run(started: StartedParts): void;
  /** What may happen to it by time alone has changed with its state. */
  limitTime(): void;
  /** Its machine ran and is of no use. */
  fail(error: unknown): Promise<void>;
}

/** Of one sandbox. */
export class Pauses {
  readonly #waiters = new Waiters();
  #saving: AbortController | undefined;
  #between: Promise<void> | undefined;
  #saved: Promise<unknown> = Promise.resolve();

  constructor(private readonly host: PausesHost) {}

  /** It is paused, and a request waits for it. */
  get isWanted(): boolean {
    return this.host.record.report.state === 'paused' && this.#waiters.any;
  }

  /** It is being saved: what its guest asks for has to wait. */
  get isSaving(): boolean {
    return this.#saving !== undefined;
  }

  /** Something short is done to it: a save, or a reboot, waits for that. */
  get isHeld(): boolean {
    return this.#between !== undefined;
  }

  /**
   * Does short work while nothing else is done to it, with its machine if it has one. Resolves with false, and nothing done, when it neither
   * runs nor is paused, or is being saved.
   */
  async hold(work: (machine: Machine | undefined) => Promise<void>): Promise<boolean> {
    const { host } = this;
    const { state } = host.record.report;
    const started = host.started();
    const runs = state === 'running' && started !== undefined && host.isPresent(started.machine);
    if (this.#saving || this.#between || !host.isOurs() || !(runs || state === 'paused')) return false;
    const doing = work(runs ? started.machine : undefined);
    this.#between = doing.then(
      () => undefined,
      () => undefined,
    );
    try {
      await doing;
    } finally {
      this.#between = undefined;
    }
    return true;
  }

  /** Breaks off a save whose guest has asked for a reboot meanwhile, or whose machine has ended. */
  breakOff(reason: Error): void {
    this.#saving?.abort(reason);
  }

  /** Resolves when the save or the short work that is done to it, if any is, has ended and is undone or recorded. */
  async workEnded(): Promise<void> {
    await this.#saved.catch(() => undefined);
    await this.#between;
  }

  /**
   * Runs a save of the machine; one at a time.
   * @throws SandboxConflictError when the sandbox does not run, or is being saved
   */
  async save<T>(work: (machine: Machine, signal: AbortSignal) => Promise<T>): Promise<T> {
    while (this.#between) await this.#between;
    const { host } = this;
    const { report, spec } = host.record;
    const started = host.started();
    if (report.state !== 'running' || !started || !host.isPresent(started.machine) || this.#saving) {
      const state = host.record.rebooting ? 'rebooting' : report.state;
      throw new SandboxConflictError(`${spec.sandboxId} is ${this.#saving ? 'being saved' : state}`);
    }
    this.#saving = new AbortController();
    const saved = work(started.machine, AbortSignal.any([host.signal, this.#saving.signal]));
    this.#saved = saved;
    try {
      return await saved;
    } finally {
      this.#saving = undefined;
    }
  }

  /**
   * Saves the sandbox and ends its machine.
   * @throws SandboxConflictError when it does not run; VmmError when it could not be saved, and runs on
   */
  async pause(): Promise<void> {
    const { host } = this;
    await this.save(async (machine, signal) => {
      try {
        await pauseMachine(machine, host, host.parts, signal);
      } catch (error) {
        const hasEnded = error instanceof MachineEndedError || signal.reason instanceof MachineEndedError;
        if (host.isPresent(machine) && !hasEnded) await this.#goOn(machine);
        throw error;
      }
    });
    await host.endMachine(
      new GuestPausedError(
        'The sandbox was paused. Its next use lets it go on; attach to its sessions then.',
      ),
    );
    delete host.record.machine;
    // It is paused whatever becomes of this: our next start knows a machine that is gone.
    await host.save().catch((error: unknown) => this.#logUnwritten(error));
    await this.#dropSnapshots();
    host.limitTime();
    if (this.isWanted) host.change({});
  }

  /** Begins to give it a machine again. */
  async resume(): Promise<void> {
    const { host } = this;
    const { record, parts } = host;
    try {
      host.signal.throwIfAborted();
      host.change({ state: 'resuming' });
      await host.save();
      const snapshot = record.memory === undefined ? undefined : await parts.snapshots.read(record.memory);
      if (!snapshot) throw new Error('what was saved of its memory is missing or damaged');
      // A checkpoint may have been cut off on the way.
      if (isPausedDiskFrozen(host)) await freezePausedDisk(host, parts);
      const network = await host.network();
      const machine = await parts.restores.run(host.signal, () =>
        resumeMachine({ snapshot, network }, host, parts, host.machineUndo, host.signal),
      );
      await this.takeUp(machine, network);
    } catch (error) {
      await this.#onFailedResume(error);
    }
  }

  /** The rest of a resume: its machine is in the record. */
  async takeUp(machine: Machine, network: SandboxNetwork): Promise<void> {
    const { host } = this;
    const { record, parts, machineUndo, signal } = host;
    const started = await takeUpMachine(machine, network, record, parts, machineUndo, signal);
    signal.throwIfAborted();
    host.run(started);
    // It runs, and is not to end for want of room: our next start takes up what the record says of it.
    await host.save().catch((error: unknown) => this.#logUnwritten(error));
  }

  /** The same for a machine that our predecessor has begun to resume. */
  async takeUpFound(machine: Machine, network: SandboxNetwork): Promise<void> {
    try {
      // It was loaded; whether it was let go is not known.
      await machine.pausing?.resume();
      await this.takeUp(machine, network);
    } catch (error) {
      await this.#onFailedResume(error);
    }
  }

  /** Resolves when it runs, however it rests now. Rejects with why it does not. */
  async awake(signal: AbortSignal): Promise<void> {
    const { host } = this;
    if (host.record.report.state === 'running') return;
    const { sandboxId } = host.record.spec;
    const late = () =>
      new SandboxConflictError(
        `${sandboxId} is paused and could not be resumed within ${wakeTimeoutMs / 1000} s. Try again.`,
      );
    const waiting = this.#waiters.wait(wakeTimeoutMs, late, signal);
    if (this.isWanted) host.change({});
    try {
      await waiting;
    } finally {
      // Who gave up wants nothing any more.
      if (host.record.report.state === 'paused' && !this.#waiters.any) host.change({});
    }
  }

  /** It runs, or has ended: nobody waits any more. */
  settle(error?: Error): void {
    if (error) this.#waiters.fail(error);
    else this.#waiters.release();
  }

  async #goOn(machine: Machine): Promise<void> {
    const { host } = this;
    await undoPause(machine, host, host.parts).catch((error: unknown) =>
      host.log.error({ err: error }, 'a pause that failed could not be taken back whole'),
    );
    this.#waiters.release();
    host.limitTime();
  }

  async #onFailedResume(error: unknown): Promise<void> {
    const { host } = this;
    const { record } = host;
    // Ended by a delete, or let go of: our next start begins it again from its record.
    if (!host.isOurs()) return;
    host.log.warn({ err: error }, 'resume failed');
    if (record.machine !== undefined) return host.fail(error);
    // Nothing has run: it is as it was.
    const why = error instanceof Error ? error.message : String(error);
    host.change({ state: 'paused', message: why });
    await host.save(true).catch((failure: unknown) => this.#logUnwritten(failure));
    host.limitTime();
    this.#waiters.fail(new SandboxConflictError(`${record.spec.sandboxId} could not be resumed: ${why}`));
  }

  #logUnwritten(error: unknown): void {
    this.host.log.error({ err: error }, 'a record could not be written');
  }

  async #dropSnapshots(): Promise<void> {
    const { record, parts } = this.host;
    await parts.snapshots.need(record.spec.sandboxId, neededSnapshots(record));
  }
}
