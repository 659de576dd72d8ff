/**
 * One sandbox on this node, from acceptance to its end. Owned by `Sandboxes`.
 *
 * States: pending (waiting for its image) -> starting -> running -> stopping -> stopped | failed.
 * While running its guest may reboot: a new machine then goes on with the disk and network of the old one.
 * A delete or a timeout wins over everything: it aborts a start, waits for it to settle, and undoes
 * what it made. Only this class writes the sandbox's record; a change that names a machine or a
 * network is on disk before the next step. If we die at any moment, `adopt` takes over from it.
 */
import { rm } from 'node:fs/promises';
import { endings, type NodeSandboxSpec, type SandboxReport } from '@sandlot/protocol';
import type { Machine, MachineEnd } from '@sandlot/vmm';
import type { Logger } from 'pino';
import { GuestRebootedError } from '../guest/channel.js';
import { GuestClient } from '../guest/guest-client.js';
import type { SandboxNetwork } from '../network/network.js';
import { Activity } from './activity.js';
import { bootMachine } from './boot-machine.js';
import {
  causeOfMachineEnd,
  causeOfStartError,
  type EndCause,
  isFailure,
  timeoutCause,
} from './end-reasons.js';
import { ExecViews } from './exec-views.js';
import { firstPrograms } from './init-program.js';
import { RebootLimit } from './reboot-limit.js';
import type { SandboxRecord } from './record.js';
import { type RecordOwner, rebootProgress, startProgress } from './record-progress.js';
import { readStartLog, StartLog } from './start-log.js';
import { type StartedParts, type StartParts, untilAborted } from './start-parts.js';
import { startSandbox } from './start-steps.js';
import { Timeouts } from './timeouts.js';
import { UndoStack } from './undo-stack.js';

/** How long a guest whose agent is gone may take to say why, before we end it, ms. */
const deadAgentGraceMs = 2_000;
const logTailBytes = 64 * 1024;

/** One sandbox. */
export class Sandbox {
  readonly activity: Activity;
  /** Which of its execs act in its default view. */
  readonly views: ExecViews;
  readonly #abort = new AbortController();
  readonly #undo = new UndoStack();
  /** Of what belongs to the present machine alone. */
  readonly #machineUndo = new UndoStack();
  readonly #reboots = new RebootLimit();
  readonly #log: Logger;
  #started: StartedParts | undefined;
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

  /** Shell that the image has: `/bin/bash`, `/bin/sh` or "". */
  get shell(): string {
    return this.record.shell ?? '/bin/sh';
  }

  /** Whether this process may be its machine: the one that runs, or one of a start under way, which only it may end. */
  ownsProcess(pid: number): boolean {
    return this.#started ? this.#started.machine.handle.pid === pid : this.#atWork;
  }

  /** Begins the start; progress is in the reports. */
  begin(): void {
    this.#atWork = true;
    this.#starting = this.#start();
  }

  /** Takes over a sandbox that ran before our restart. Resolves when it is known whether it still does. */
  async adopt(): Promise<void> {
    const { machine: handle, network: networkHandle } = this.record;
    if (!handle || !networkHandle)
      return this.#finish({
        reason: 'MACHINE_ENDED',
        message: 'The record of the sandbox names no machine.',
      });
    this.#undo.push('image', () => this.parts.images.release(this.id));
    const network = await this.parts.networks.adopt(networkHandle);
    if (network) this.#undo.push('network', () => network.release());
    this.#undo.push('machine folder', () =>
      rm(this.parts.records.machineFolderOf(this.id), { recursive: true, force: true }),
    );
    const found = await this.parts.driver.adopt(handle);
    const isAlive = 'ports' in found;
    // Of a reboot that was under way the machine may be the old one, or a new one that is not ready.
    if (!isAlive && !this.record.rebooting) return this.#finish(causeOfMachineEnd(found));
    if (isAlive) this.#machineUndo.push('machine', () => found.end());
    this.#machineUndo.push('cpu limit', () => this.parts.cpuLimits.remove(this.id));
    if (!network) {
      return this.#finish({
        reason: 'MACHINE_ENDED',
        message: 'The network of the sandbox was removed while the node agent was away.',
      });
    }
    if (!isAlive || this.record.rebooting) {
      this.#atWork = true;
      this.#limitTime();
      this.#starting = this.#reboot(network);
      return;
    }
    const guest = new GuestClient(found.ports);
    this.#machineUndo.push('guest connection', async () => guest.close());
    this.#run({ machine: found, network, guest });
  }

  /** Undoes what an interrupted start has made, so that it can begin again. */
  async undoInterruptedStart(): Promise<void> {
    const { machine, network } = this.record;
    if (machine) {
      const found = await this.parts.driver.adopt(machine);
      if ('ports' in found) await found.end();
    }
    if (network) await (await this.parts.networks.adopt(network))?.release();
    await rm(this.parts.records.machineFolderOf(this.id), { recursive: true, force: true });
    delete this.record.machine;
    delete this.record.network;
    delete this.record.startCommandRuns;
    delete this.record.boot;
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
      await this.#started?.network.applyPolicy(policy);
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

  async #start(): Promise<void> {
    this.#change({ state: 'pending', stage: 'image' });
    try {
      const started = await startSandbox(
        this.spec,
        this.parts,
        startProgress(this.#owner()),
        { sandbox: this.#undo, machine: this.#machineUndo },
        this.#abort.signal,
      );
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
    const { machine, guest } = started;
    void machine.ended.then((end) => this.#onMachineEnded(machine, end));
    machine.onGuestPortClosed(() => void this.#onAgentGone(machine));
    machine.onGuestReset(() => this.#onGuestReset(started));
    delete this.record.report.stage;
    this.#change({ state: 'running', egressGeneration: this.spec.egress.generation });
    this.activity.touch();
    this.#limitTime();
    if (this.record.startCommandRuns) this.#followStartCommand(guest);
  }

  #limitTime(): void {
    this.#timeouts ??= new Timeouts(
      { deadlineUnixMs: this.spec.deadlineUnixMs, idleTimeoutMs: this.spec.idleTimeoutMs },
      this.activity,
      async () => {
        const { guest } = this;
        if (!guest) return true;
        return (await guest.listExecs()).sessions.some((info) => info.session && !info.end);
      },
      (reason) => void this.end(timeoutCause(reason, this.spec)),
    );
  }

  #onGuestReset({ machine, network, guest }: StartedParts): void {
    if (!this.#isPresent(machine)) return;
    guest.close(
      new GuestRebootedError('The sandbox rebooted, and what ran in it ended. Its disk is as it was.'),
    );
    this.#started = undefined;
    this.#atWork = true;
    this.#starting = this.#reboot(network);
  }

  /** A new machine goes on with the disk that the old one has left. */
  async #reboot(network: SandboxNetwork): Promise<void> {
    const startedMs = performance.now();
    const { signal } = this.#abort;
    try {
      this.#startLog?.close();
      this.record.rebooting = true;
      delete this.record.startCommandRuns;
      delete this.record.report.exitCode;
      this.#change({});
      // On disk before the old machine goes: from then on nothing else says that it was a reboot.
      await this.#save();
      await this.#undoAll(this.#machineUndo);
      signal.throwIfAborted();
      if (!this.#reboots.admit(Date.now()))
        return await this.#finishAs({ reason: 'REBOOT_LOOP', message: endings.REBOOT_LOOP.message });
      const { boot: facts } = this.record;
      if (!facts) throw new Error('its record was written by a version that could not reboot sandboxes');
      const shape = { vcpus: this.spec.vcpus, memoryMiB: this.spec.memoryMiB };
      const template = await untilAborted(this.parts.templates.get(shape), signal);
      const order = { spec: this.spec, facts, template, network, rebooted: true };
      const started = await this.parts.restores.run(signal, () =>
        bootMachine(order, this.parts, rebootProgress(this.#owner()), this.#machineUndo, signal),
      );
      signal.throwIfAborted();
      delete this.record.rebooting;
      this.#run(started);
      this.#log.info({ ms: Math.round(performance.now() - startedMs) }, 'rebooted');
      await this.#save();
    } catch (error) {
      // As in a start: ended by a delete, or let go of, to be taken up again from the record.
      if (signal.aborted || this.#detached) return;
      this.#log.warn({ err: error }, 'reboot failed');
      const cause = causeOfStartError(error, this.spec.image);
      await this.#finishAs({ ...cause, message: `The sandbox could not be rebooted: ${cause.message}` });
    }
  }

  /** Something is still to be done about what happens to this machine: it is ours, and nobody ends it. */
  #isPresent(machine: Machine): boolean {
    return !this.#detached && !this.#ending && this.#started?.machine === machine;
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
    delete this.record.machine;
    delete this.record.network;
    delete this.record.rebooting;
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
    // All is undone. If even this cannot be written (a full disk), the next start finds the machine gone.
    await this.#save().catch((error: unknown) =>
      this.#log.error({ err: error }, 'the end of a sandbox could not be written'),
    );
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
      save: () => this.#save(),
      log: this.#log,
    };
  }

  #change(change: Partial<SandboxReport>): void {
    Object.assign(this.record.report, change);
    this.publish(this.report);
  }

  /** One write at a time, the newest state last. */
  #save(): Promise<void> {
    const write = () => this.parts.records.write({ ...this.record, report: this.report });
    // One that failed has been told to its caller; the next may find room again.
    this.#saving = this.#saving.then(write, write);
    return this.#saving;
  }
}
