/**
 * One sandbox on this node, from acceptance to its end. Owned by `Sandboxes`.
 *
 * States: pending (waiting for its image) -> starting -> running -> stopping -> stopped | failed.
 * While running its guest may reboot, and another machine goes on: `reboot.ts`. A pause saves it
 * (running -> pausing -> paused -> resuming -> running): `pauses.ts`. A rollback gives it another machine (running or paused -> resuming ->
 * running): `rollback.ts`.
 * A delete or a timeout wins over everything: it aborts a start, waits for it to settle, and undoes
 * what it made. Only this class writes the sandbox's record; a change that names a machine or a
 * network is on disk before the next step. If we die at any moment, `adopt` takes over from it.
 */
import { endings, type NodeSandboxSpec, type SandboxReport } from '@sandlot/protocol';
import { type Machine, type MachineEnd, MachineEndedError } from '@sandlot/vmm';
import type { Logger } from 'pino';
import { GuestRebootedError, type GuestUnreachableError } from '../guest/channel.js';
import type { GuestClient } from '../guest/guest-client.js';
import type { SandboxNetwork } from '../network/network.js';
import type { Chain } from '../snapshots/chain-merger.js';
import { Activity } from './activity.js';
import { type AdoptionHost, findPaused, findRunning, undoInterruptedStart } from './adoption.js';
import { checkpointPaused } from './checkpoint-paused.js';
import { SandboxConflictError } from './conflict.js';
import { pointOf, recordOfCopy } from './copies.js';
import {
  causeOfMachineEnd,
  causeOfStartError,
  type EndCause,
  isFailure,
  timeoutCause,
} from './end-reasons.js';
import { ExecViews } from './exec-views.js';
import { firstPrograms } from './init-program.js';
import { type CheckpointOrder, makeCheckpoint, type SavedCheckpoint } from './make-checkpoint.js';
import { Pauses, type PausesHost } from './pauses.js';
import { type RebootHost, reboot } from './reboot.js';
import { RebootLimit } from './reboot-limit.js';
import type { RestorePoint, SandboxRecord } from './record.js';
import { type RecordOwner, startProgress } from './record-progress.js';
import { replaceLayers } from './replace-layers.js';
import { type RollbackHost, rollBack } from './rollback.js';
import { saveForCopies } from './save-for-copies.js';
import { startCopy } from './start-copy.js';
import { readStartLog, StartLog } from './start-log.js';
import type { StartedParts, StartParts } from './start-parts.js';
import { startSandbox } from './start-steps.js';
import { Timeouts } from './timeouts.js';
import { UndoStack } from './undo-stack.js';

/** How long a guest whose agent is gone may take to say why, before we end it, ms. */
const deadAgentGraceMs = 2_000;
const logTailBytes = 64 * 1024;

/** One sandbox. */
export class Sandbox implements Chain {
  readonly activity: Activity;
  /** Which of its execs act in its default view. */
  readonly views: ExecViews;
  readonly #pauses: Pauses;
  readonly #abort = new AbortController();
  readonly #undo = new UndoStack();
  /** Of what belongs to the present machine alone. */
  readonly #machineUndo = new UndoStack();
  readonly #reboots = new RebootLimit();
  readonly #log: Logger;
  #started: StartedParts | undefined;
  /** Stays over reboots and pauses. */
  #network: SandboxNetwork | undefined;
  #pausing: Promise<void> | undefined;
  #starting: Promise<void> = Promise.resolve();
  #ending: Promise<void> | undefined;
  #timeouts: Timeouts | undefined;
  #startLog: StartLog | undefined;
  /** From the beginning of a start, or of a reboot, to its end here; not for what an earlier node agent began. */
  #atWork = false;
  #detached = false;
  #saving: Promise<void> = Promise.resolve();

  constructor(
    private readonly record: SandboxRecord,
    private readonly parts: StartParts,
    log: Logger,
    private readonly publish: (report: SandboxReport) => void,
  ) {
    this.activity = new Activity(record.report.lastActivityUnixMs);
    this.#log = log.child({ sandbox: record.spec.sandboxId });
    this.views = new ExecViews(
      record.sessionsElsewhere ?? [],
      async (sessionsElsewhere) => {
        record.sessionsElsewhere = sessionsElsewhere;
        await this.#save();
      },
      async () => (await this.guest?.listExecs()) ?? { sessions: [] },
    );
    this.#pauses = new Pauses(this.#pausesHost());
  }

  get id(): string {
    return this.record.spec.sandboxId;
  }

  get spec(): NodeSandboxSpec {
    return this.record.spec;
  }

  /** What is true now. */
  get report(): SandboxReport {
    return {
      ...this.record.report,
      lastActivityUnixMs: this.activity.lastUnixMs,
      ...(this.#started ? { pid: this.#started.machine.handle.pid } : {}),
      ...(this.#pauses.isWanted ? { wanted: true } : {}),
    };
  }

  /** The guest, while the sandbox runs. */
  get guest(): GuestClient | undefined {
    return this.record.report.state === 'running' ? this.#started?.guest : undefined;
  }

  /** It runs, and its guest is not there for a moment. */
  get isRebooting(): boolean {
    return this.record.report.state === 'running' && this.record.rebooting === true;
  }

  /** It ends, or has ended. */
  get isEnding(): boolean {
    return this.#ending !== undefined;
  }

  /** It is being paused, is paused, or comes back from that: a request may wait for it. */
  get isResting(): boolean {
    return ['pausing', 'paused', 'resuming'].includes(this.record.report.state);
  }

  /** Snapshot with its memory, while it is paused. */
  get pausedMemory(): string | undefined {
    return this.record.report.state === 'paused' ? this.record.memory : undefined;
  }

  /** Shell that the image has: `/bin/bash`, `/bin/sh` or "". */
  get shell(): string {
    return this.record.shell ?? '/bin/sh';
  }

  /** Whether this process may be its machine: the one that runs, or one of a start under way, which only it may end. */
  ownsProcess(pid: number): boolean {
    if (this.record.report.state === 'paused') return false;
    return this.#started ? this.#started.machine.handle.pid === pid : this.#atWork;
  }

  /** Begins the start, or goes on with a resume; progress is in the reports. A copy has a source, if that still runs. */
  begin(source?: Sandbox): void {
    this.#atWork = true;
    if (this.record.report.state !== 'resuming') this.#starting = this.#start(source);
    else this.#starting = this.record.rollback ? rollBack(this.#rollbackHost()) : this.#pauses.resume();
  }

  /**
   * Saves it for copies, and goes on. Resolves with the snapshot's id and what a copy's record is.
   * @throws SandboxConflictError when it does not run; VmmError when it could not be saved
   */
  async saveForCopies(): Promise<{ snapshotId: string; recordOf(spec: NodeSandboxSpec): SandboxRecord }> {
    const snapshotId = await this.#saveGoingOn((started, signal) =>
      saveForCopies(started.machine, this.#owner(), this.parts, signal),
    );
    const point = structuredClone(pointOf(this.record, snapshotId));
    return { snapshotId, recordOf: (spec) => recordOfCopy(point, spec) };
  }

  /**
   * Saves it for a checkpoint, and goes on; one that is paused stays so.
   * @throws SandboxConflictError when it neither runs nor is paused; VmmError when it could not be saved
   */
  async saveForCheckpoint(order: CheckpointOrder): Promise<SavedCheckpoint> {
    await this.parts.merger.room(this, this.#abort.signal);
    while (this.#pausing || this.#pauses.isSaving || this.#pauses.isHeld) await this.#starting;
    if (this.record.report.state === 'paused') return this.#checkpointPaused(order);
    return this.#saveGoingOn(async (started, signal) =>
      structuredClone(await makeCheckpoint(started, this.#owner(), this.parts, order, signal)),
    );
  }

  async #checkpointPaused(order: CheckpointOrder): Promise<SavedCheckpoint> {
    let saved: SavedCheckpoint | undefined;
    const saving = this.#pauses.hold(async () => {
      saved = structuredClone(await checkpointPaused(this.#owner(), this.parts, order));
    });
    this.#letEndWaitFor(saving);
    if (!(await saving) || !saved) throw new SandboxConflictError(`${this.id} is being ended`);
    this.parts.merger.look();
    return saved;
  }

  /** One save after the other; an end waits for it. */
  async #saveGoingOn<T>(work: (started: StartedParts, signal: AbortSignal) => Promise<T>): Promise<T> {
    await this.parts.merger.room(this, this.#abort.signal);
    while (this.#pauses.isSaving || this.#pauses.isHeld) await this.#starting;
    const started = this.#started;
    const saving = this.#pauses.save((_, signal) => work(started as StartedParts, signal));
    this.#letEndWaitFor(saving);
    try {
      return await saving;
    } finally {
      this.parts.merger.look();
    }
  }

  /** Snapshots whose disks lie below its own, the lowest first. */
  get layers(): readonly string[] {
    return this.record.layers ?? [];
  }

  /** See {@link Chain}. */
  async replaceLayers(run: readonly string[], merged: string): Promise<boolean> {
    const replacing = this.#pauses.hold((machine) =>
      replaceLayers(
        machine,
        () => machine === undefined || this.#isPresent(machine),
        this.#owner(),
        this.parts,
        run,
        merged,
      ),
    );
    this.#letEndWaitFor(replacing);
    return replacing;
  }

  /**
   * Saves it and ends its machine. Resolves when it is paused.
   * @throws SandboxConflictError when it does not run; VmmError when it could not be saved, and runs on
   */
  async pause(): Promise<void> {
    if (this.record.report.state === 'paused') return;
    // Copies of it are on their way: they come first.
    while (!this.#pausing && this.#pauses.isSaving) await this.#starting;
    if (!this.#pausing) {
      const pausing = this.#pauses.pause().finally(() => {
        this.#pausing = undefined;
      });
      this.#pausing = pausing;
      this.#letEndWaitFor(pausing);
    }
    await this.#pausing;
  }

  /** An end aborts what is under way, and undoes all only when it has settled. */
  #letEndWaitFor(work: Promise<unknown>): void {
    const before = this.#starting;
    this.#starting = work.then(
      () => before,
      () => before,
    );
  }

  /**
   * Begins to give it a machine of a raised generation: the one before can have none any more.
   * @throws SandboxConflictError when it is not paused
   */
  resume(generation: number): void {
    const { report, spec } = this.record;
    if (report.state !== 'paused' || generation <= spec.generation || this.#ending)
      throw new SandboxConflictError(
        `${this.id} is ${report.state} with generation ${spec.generation}, and cannot be resumed as ${generation}`,
      );
    this.raiseGeneration(generation);
    // At once: nobody may be told that this generation is paused before it was.
    report.state = 'resuming';
    delete report.message;
    // What of the pause is still under way comes first.
    const before = this.#starting;
    this.#atWork = true;
    this.#starting = before.then(() => this.#pauses.resume());
  }

  /**
   * Begins to put it back to a point, with a machine of a raised generation: the one before is gone by then. Resolves
   * when the record says so, whatever becomes of us.
   * @throws SandboxConflictError when it neither runs nor is paused: nothing has changed then
   */
  async rollBack(generation: number, point: RestorePoint): Promise<void> {
    while (this.#pauses.isSaving || this.#pauses.isHeld) await this.#starting;
    const { report, spec } = this.record;
    const rests = report.state === 'paused';
    const runs = report.state === 'running' && this.#started !== undefined;
    if ((!rests && !runs) || generation <= spec.generation || this.#ending)
      throw new SandboxConflictError(
        `${this.id} is ${this.isRebooting ? 'rebooting' : report.state} with generation ${spec.generation}, and cannot be rolled back as ${generation}`,
      );
    const { state, message } = report;
    const oldGeneration = spec.generation;
    this.raiseGeneration(generation);
    report.state = 'resuming';
    delete report.message;
    this.record.rollback = structuredClone(point);
    const before = this.#starting;
    this.#atWork = true;
    const told = this.#save(true);
    this.#starting = before
      .then(() => told)
      .then(
        () => rollBack(this.#rollbackHost()),
        () => {
          if (this.#ending) return;
          // For want of room on the host's disk: it is as it was.
          delete this.record.rollback;
          spec.generation = oldGeneration;
          this.#change({ state, generation: oldGeneration, ...(message === undefined ? {} : { message }) });
        },
      );
    await told.catch(async (error: unknown) => {
      await this.#starting;
      throw error;
    });
  }

  /** What is reported from now on is of this generation, if it is higher. */
  raiseGeneration(generation: number): void {
    const { report, spec } = this.record;
    spec.generation = Math.max(spec.generation, generation);
    report.generation = spec.generation;
  }

  /** Resolves when it runs, and wakes it if it is paused. Rejects with why it does not. */
  awake(signal: AbortSignal): Promise<void> {
    return this.#pauses.awake(signal);
  }

  /** Takes over a sandbox that ran before our restart. Resolves when it is known whether it still does. */
  async adopt(): Promise<void> {
    const found = await findRunning(this.#adoptionHost());
    if ('cause' in found) return this.#finish(found.cause);
    const { network } = found;
    this.#network = network;
    if (found.is === 'running') return this.#run(found.started);
    if (found.is === 'resuming') {
      this.#atWork = true;
      this.#starting = this.#pauses.takeUpFound(found.machine, network);
      return;
    }
    this.#limitTime();
    this.#reboot(network);
  }

  /** Takes over a sandbox that was paused, or whose resume had not come so far that anything ran. */
  async adoptPaused(): Promise<void> {
    this.#network = await findPaused(this.#adoptionHost());
    this.#limitTime();
  }

  /** Undoes what an interrupted start has made, so that it can begin again. */
  undoInterruptedStart(): Promise<void> {
    return undoInterruptedStart(this.record, this.parts);
  }

  #adoptionHost(): AdoptionHost {
    return { ...this.#owner(), parts: this.parts, undo: this.#undo, machineUndo: this.#machineUndo };
  }

  /** Ends it, whatever it is doing. Resolves when nothing is left of it but its record. Idempotent. */
  end(cause: EndCause): Promise<void> {
    this.#ending ??= this.#end(cause);
    return this.#ending;
  }

  /** Lets go of it without ending it: we are stopping. */
  detach(): void {
    this.#detached = true;
    this.#timeouts?.close();
    this.#startLog?.close();
    this.#started?.guest.close();
    this.#started?.machine.detach();
  }

  /** Puts a new egress policy in force. Throws NetworkError. */
  async applyEgress(policy: NodeSandboxSpec['egress']): Promise<number> {
    if (policy.generation >= this.record.spec.egress.generation) {
      await this.#network?.applyPolicy(policy);
      this.record.spec.egress = policy;
      this.record.report.egressGeneration = policy.generation;
      await this.#save();
    }
    return this.record.report.egressGeneration ?? policy.generation;
  }

  /** Output of the start command. */
  logs(): Promise<string> {
    return readStartLog(this.parts.records.logPathOf(this.id));
  }

  async #start(source?: Sandbox): Promise<void> {
    const { copy } = this.record;
    this.#change({ state: 'pending', stage: copy ? 'network' : 'image' });
    try {
      const progress = startProgress(this.#owner());
      const undo = { sandbox: this.#undo, machine: this.#machineUndo };
      const { signal } = this.#abort;
      const started = copy
        ? await startCopy(
            this.record,
            source ? source.#network : undefined,
            this.parts,
            progress,
            undo,
            signal,
          )
        : await startSandbox(this.record, this.parts, progress, undo, signal);
      this.#abort.signal.throwIfAborted();
      this.record.report.startedAtUnixMs = Date.now();
      this.#run(started);
      await this.#save();
    } catch (error) {
      // Ended by a delete, or let go of: the next start of the node begins it again from its record.
      if (this.#abort.signal.aborted || this.#detached) return;
      this.#log.warn({ err: error }, 'start failed');
      await this.#finishAs(causeOfStartError(error, this.record.spec.image));
    }
  }

  #run(started: StartedParts): void {
    this.#started = started;
    this.#network = started.network;
    const { machine, guest } = started;
    void machine.ended.then((end) => this.#onMachineEnded(machine, end));
    machine.onGuestPortClosed(() => void this.#onAgentGone(machine));
    machine.onGuestReset(() => this.#onGuestReset(started));
    delete this.record.report.stage;
    this.#change({ state: 'running', egressGeneration: this.spec.egress.generation });
    this.activity.touch();
    this.#limitTime();
    if (this.record.startCommandRuns) this.#followStartCommand(guest);
    this.#pauses.settle();
  }

  #limitTime(): void {
    this.#timeouts?.close();
    if (this.#detached) return;
    const { deadlineUnixMs, idleTimeoutMs } = this.spec;
    this.#timeouts = new Timeouts(
      // One that rests is idle on purpose.
      { deadlineUnixMs, idleTimeoutMs: this.isResting ? undefined : idleTimeoutMs },
      this.activity,
      async () => {
        const { guest } = this;
        if (!guest) return true;
        return (await guest.listExecs()).sessions.some((info) => info.session && !info.end);
      },
      (reason) => {
        if (reason === 'IDLE_TIMEOUT' && this.spec.idleAction === 'pause') void this.#pauseIdle();
        else void this.end(timeoutCause(reason, this.spec));
      },
    );
  }

  async #pauseIdle(): Promise<void> {
    try {
      await this.pause();
    } catch (error) {
      this.#log.warn(
        { err: error },
        'an idle sandbox could not be paused; after its idle time it is tried again',
      );
      this.activity.touch();
      if (this.record.report.state === 'running' && !this.#ending) this.#limitTime();
    }
  }

  #onGuestReset({ machine, network, guest }: StartedParts): void {
    if (!this.#isPresent(machine)) return;
    if (this.#pauses.isSaving || this.#pauses.isHeld) {
      this.#pauses.breakOff(new Error('the sandbox reboots'));
      void this.#starting.then(() => this.#onGuestReset({ machine, network, guest }));
      return;
    }
    guest.close(
      new GuestRebootedError('The sandbox rebooted, and what ran in it ended. Its disk is as it was.'),
    );
    this.#started = undefined;
    this.#reboot(network);
  }

  /** Something is still to be done about what happens to this machine: it is ours, and nobody ends it, also not for a rollback. */
  #isPresent(machine: Machine): boolean {
    if (this.#detached || this.#ending || this.record.rollback) return false;
    return this.#started?.machine === machine;
  }

  async #finishAs(cause: EndCause): Promise<void> {
    this.#ending ??= this.#finish(cause, 'failed');
    await this.#ending;
  }

  #followStartCommand(guest: GuestClient): void {
    this.#startLog = new StartLog(this.parts.records.logPathOf(this.id), guest, (end) => {
      this.#change({ exitCode: end.exitCode });
      void this.#save().catch((error: unknown) =>
        this.#log.error({ err: error }, 'a record could not be written'),
      );
    });
    void this.#startLog.follow();
  }

  /** As process 1 of the guest its death is a panic; a machine that hangs instead is ended. Beside an init nobody is left to talk to. */
  async #onAgentGone(machine: Machine): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, deadAgentGraceMs));
    if (!this.#isPresent(machine)) return;
    if (this.record.boot && firstPrograms(this.spec, this.record.boot.image).init.length > 0)
      return this.end({ reason: 'AGENT_KILLED', message: endings.AGENT_KILLED.message });
    await this.end({
      reason: 'GUEST_PANIC',
      message: `The guest agent of the sandbox died. Last lines of its console: ${await machine.readSerialTail(500).catch(() => '')}`,
    });
  }

  #onMachineEnded(machine: Machine, end: MachineEnd): void {
    if (!this.#isPresent(machine)) return;
    if (this.#pauses.isSaving || this.#pauses.isHeld) {
      // The save takes back what it has made, or has made a paused sandbox by now.
      this.#pauses.breakOff(new MachineEndedError(end));
      void this.#pauses.workEnded().then(() => {
        if (this.record.report.state !== 'paused') this.#onMachineEnded(machine, end);
      });
      return;
    }
    this.#log.info({ end }, 'machine ended');
    this.#ending = this.#finish(causeOfMachineEnd(end));
  }

  async #end(cause: EndCause): Promise<void> {
    this.#change({ state: 'stopping' });
    this.#abort.abort(new Error(`the sandbox is being ended: ${cause.message}`));
    await this.#starting;
    await this.#finish(cause);
  }

  async #finish(cause: EndCause, state: 'stopped' | 'failed' = 'stopped'): Promise<void> {
    this.#timeouts?.close();
    this.#startLog?.close();
    const lastActivityUnixMs = this.activity.lastUnixMs;
    await this.#undoAll(this.#machineUndo);
    await this.#undoAll(this.#undo);
    this.#started = undefined;
    this.#atWork = false;
    for (const gone of ['machine', 'network', 'rebooting', 'memory', 'layers', 'saving', 'rollback'] as const)
      delete this.record[gone];
    await this.parts.snapshots.need(this.id, []);
    delete this.record.report.stage;
    delete this.record.report.imageBuildId;
    const failed = state === 'failed' || isFailure(cause.reason);
    this.#change({
      state: failed ? 'failed' : 'stopped',
      reason: cause.reason,
      message: cause.message,
      endedAtUnixMs: Date.now(),
      lastActivityUnixMs,
      logTail: await readStartLog(this.parts.records.logPathOf(this.id), logTailBytes),
    });
    this.#pauses.settle(new SandboxConflictError(`${this.id} has ended: ${cause.message}`));
    // All is undone. If even this cannot be written (a full disk), the next start finds the machine gone.
    await this.#save().catch((error: unknown) =>
      this.#log.error({ err: error }, 'the end of a sandbox could not be written'),
    );
  }

  #pausesHost(): PausesHost {
    return {
      ...this.#owner(),
      parts: this.parts,
      signal: this.#abort.signal,
      machineUndo: this.#machineUndo,
      started: () => this.#started,
      network: () => this.#ownNetwork(),
      isPresent: (machine) => this.#isPresent(machine),
      isOurs: () => !this.#detached && !this.#abort.signal.aborted,
      endMachine: (reason) => this.#endPausedMachine(reason),
      run: (started) => this.#run(started),
      limitTime: () => this.#limitTime(),
      fail: (error) => this.#failBy('resumed', error),
    };
  }

  #failBy(what: string, error: unknown): Promise<void> {
    const cause = causeOfStartError(error, this.spec.image);
    return this.#finishAs({ ...cause, message: `The sandbox could not be ${what}: ${cause.message}` });
  }

  async #endPausedMachine(reason: GuestUnreachableError): Promise<void> {
    const started = this.#started;
    // From here its end is nobody's news.
    this.#started = undefined;
    this.#atWork = false;
    this.#startLog?.close();
    started?.guest.close(reason);
    await this.#undoAll(this.#machineUndo);
  }

  /** The one it has; a new one where the host was restarted meanwhile. */
  async #ownNetwork(): Promise<SandboxNetwork> {
    if (this.#network) return this.#network;
    const network = await this.parts.networks.acquire();
    try {
      this.record.network = network.handle;
      this.record.networkIsNew = true;
      await this.#save();
      await network.applyPolicy(this.spec.egress);
    } catch (error) {
      // The next try begins with another one: without its policy this one would leave the sandbox alone.
      delete this.record.network;
      await network.release();
      throw error;
    }
    this.#undo.push('network', () => network.release());
    this.#network = network;
    return network;
  }

  #reboot(network: SandboxNetwork): void {
    this.#atWork = true;
    this.#startLog?.close();
    this.#starting = reboot(this.#rebootHost(), network);
  }

  #rebootHost(): RebootHost {
    return {
      ...this.#pausesHost(),
      endMachine: () => this.#undoAll(this.#machineUndo),
      admit: () => this.#reboots.admit(Date.now()),
      refuse: () => this.#finishAs({ reason: 'REBOOT_LOOP', message: endings.REBOOT_LOOP.message }),
      fail: (error) => this.#failBy('rebooted', error),
    };
  }

  #rollbackHost(): RollbackHost {
    return {
      ...this.#pausesHost(),
      endMachine: async (reason) => {
        await this.#endPausedMachine(reason);
        // What is made next is ours.
        this.#atWork = true;
      },
      renewNetwork: () => this.#renewNetwork(),
      fail: (error) => this.#failBy('rolled back', error),
      recall: (sessions) => this.views.recall(sessions),
    };
  }

  /** Its old connections must not meet a guest that knows nothing of them. */
  async #renewNetwork(): Promise<SandboxNetwork> {
    const old = this.#network;
    this.#network = undefined;
    const network = await this.#ownNetwork();
    if (old) {
      await network.takeNamesOf(old);
      await old.release();
    }
    return network;
  }

  async #undoAll(stack: UndoStack): Promise<void> {
    for (const { name, error } of await stack.run()) {
      this.#log.error({ err: error, step: name }, 'undoing a step failed; reconciling will try again');
    }
  }

  #owner(): RecordOwner {
    return {
      record: this.record,
      change: (change) => this.#change(change),
      save: (forGood) => this.#save(forGood),
      log: this.#log,
    };
  }

  #change(change: Partial<SandboxReport>): void {
    Object.assign(this.record.report, change);
    this.publish(this.report);
  }

  /** One write at a time, the newest state last. */
  #save(forGood = false): Promise<void> {
    const write = () => {
      // Who waits now does not outlive us.
      const { wanted: _, ...report } = this.report;
      return this.parts.records.write({ ...this.record, report }, forGood);
    };
    // One that failed has been told to its caller; the next may find room again.
    this.#saving = this.#saving.then(write, write);
    return this.#saving;
  }
}
