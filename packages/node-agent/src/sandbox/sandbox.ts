/**
 * One sandbox on this node, from acceptance to its end. Owned by `Sandboxes`.
 *
 * States: pending (waiting for its image) -> starting -> running -> stopping -> stopped | failed.
 * A delete or a timeout wins over everything: it aborts a start, waits for it to settle, and undoes
 * what it made. Only this class writes the sandbox's record; a change that names a machine or a
 * network is on disk before the next step. If we die at any moment, `adopt` takes over from it.
 */
import { rm } from 'node:fs/promises';
import type { EndReason, NodeSandboxSpec, SandboxReport, StartStage } from '@sandlot/protocol';
import type { Machine, MachineEnd } from '@sandlot/vmm';
import type { Logger } from 'pino';
import { GuestClient } from '../guest/guest-client.js';
import { Activity } from './activity.js';
import { causeOfMachineEnd, causeOfStartError, type EndCause } from './end-reasons.js';
import { ExecViews } from './exec-views.js';
import type { SandboxRecord } from './record.js';
import { readStartLog, StartLog } from './start-log.js';
import { type StartedParts, type StartParts, type StartProgress, startSandbox } from './start-steps.js';
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
  readonly #log: Logger;
  #started: StartedParts | undefined;
  #starting: Promise<void> = Promise.resolve();
  #ending: Promise<void> | undefined;
  #timeouts: Timeouts | undefined;
  #startLog: StartLog | undefined;
  /** From the beginning of a start to its end here; not for what an earlier node agent began. */
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
    if (!('ports' in found)) return this.#finish(causeOfMachineEnd(found));
    this.#undo.push('machine', () => found.end());
    this.#undo.push('cpu limit', () => this.parts.cpuLimits.remove(this.id));
    if (!network) {
      return this.#finish({
        reason: 'MACHINE_ENDED',
        message: 'The network of the sandbox was removed while the node agent was away.',
      });
    }
    const guest = new GuestClient(found.ports);
    this.#undo.push('guest connection', async () => guest.close());
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
        this.#progress(),
        this.#undo,
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
      this.#ending ??= this.#finish(causeOfStartError(error, this.record.spec.image), 'failed');
      await this.#ending;
    }
  }

  #progress(): StartProgress {
    const { report } = this.record;
    return {
      stage: (stage) => {
        const begins = stage !== 'image' && report.state === 'pending';
        this.#change(begins ? { stage, state: 'starting' } : { stage });
      },
      timing: (stage: StartStage, ms: number) => {
        report.timings[stage] = Math.round(ms * 10) / 10;
      },
      save: async (change) => {
        Object.assign(this.record, change);
        await this.#save();
      },
      imageKnown: (hold) => {
        report.imageDigest = hold.image.digest;
      },
      imageBuild: (id) => {
        if (id) this.#change({ imageBuildId: id });
        else delete report.imageBuildId;
      },
      guestInitialised: (result) => this.#log.debug({ result }, 'guest initialised'),
      warn: (message) => {
        report.warnings = [...(report.warnings ?? []), message];
      },
    };
  }

  #run(started: StartedParts): void {
    this.#started = started;
    const { machine, guest } = started;
    void machine.ended.then((end) => this.#onMachineEnded(end));
    machine.onGuestPortClosed(() => void this.#onAgentGone(machine));
    delete this.record.report.stage;
    this.#change({ state: 'running', egressGeneration: this.spec.egress.generation });
    this.activity.touch();
    this.#timeouts = new Timeouts(
      { deadlineUnixMs: this.spec.deadlineUnixMs, idleTimeoutMs: this.spec.idleTimeoutMs },
      this.activity,
      async () => (await guest.listExecs()).sessions.some((info) => info.session && !info.end),
      (reason) => void this.end(timeoutCause(reason, this.spec)),
    );
    if (this.record.startCommandRuns) this.#followStartCommand(guest);
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

  /** PID 1 of the guest is gone, so its kernel panics; a machine that hangs instead is ended. */
  async #onAgentGone(machine: Machine): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, deadAgentGraceMs));
    if (this.#detached || this.#ending) return;
    await this.end({
      reason: 'GUEST_PANIC',
      message: `The guest agent of the sandbox died. Last lines of its console: ${await machine.readSerialTail(500).catch(() => '')}`,
    });
  }

  #onMachineEnded(end: MachineEnd): void {
    if (this.#detached || this.#ending) return;
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
    for (const { name, error } of await this.#undo.run()) {
      this.#log.error({ err: error, step: name }, 'undoing a step failed; reconciling will try again');
    }
    this.#started = undefined;
    this.#atWork = false;
    delete this.record.machine;
    delete this.record.network;
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

function isFailure(reason: EndReason): boolean {
  return !['DELETED', 'TIMEOUT', 'IDLE_TIMEOUT', 'GUEST_SHUTDOWN'].includes(reason);
}

function timeoutCause(reason: 'TIMEOUT' | 'IDLE_TIMEOUT', spec: NodeSandboxSpec): EndCause {
  if (reason === 'TIMEOUT')
    return { reason, message: 'The sandbox reached the end of its lifetime (timeout_minutes).' };
  const minutes = Math.round((spec.idleTimeoutMs ?? 0) / 60_000);
  return { reason, message: `The sandbox was not used for ${minutes} minutes (idle_timeout_minutes).` };
}
