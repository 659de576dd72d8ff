/**
 * All sandboxes of this node. Called by the node's HTTP routes and by the gateway. Opening it
 * adopts what answers, begins interrupted starts again, and reaps what belongs to nobody.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { FoundRecords, SandboxRecord } from './record.js';
import { ReportHub } from './report-hub.js';
import { Sandbox } from './sandbox.js';
import type { StartParts } from './start-parts.js';
import { killStrayMachines } from './stray-machines.js';

/** A request that cannot be met because of what this node already knows of the sandbox. */
export class SandboxConflictError extends Error {
  override name = 'SandboxConflictError';
}

/** How many ended sandboxes are remembered after they were acknowledged, so that a late start of one is refused. */
const maxTombstones = 10_000;

/** The registry of sandboxes. */
export class Sandboxes {
  readonly hub = new ReportHub();
  readonly #all = new Map<string, Sandbox>();
  /** Highest generation that was ended here. */
  readonly #tombstones = new Map<string, number>();

  constructor(
    private readonly parts: StartParts,
    private readonly log: Logger,
  ) {}

  /**
   * Adopts, restarts, reaps. After it no process or network of an earlier run is left that no sandbox here names.
   * @param found what the folder of records holds, if it was read already
   */
  async open(found?: FoundRecords): Promise<void> {
    const { records, strays } = found ?? (await this.parts.records.readAll());
    const pending: Sandbox[] = [];
    const adoptions: Promise<void>[] = [];
    for (const record of records) {
      const sandbox = this.#add(record);
      const { state } = record.report;
      if (state === 'running') adoptions.push(sandbox.adopt());
      else if (state === 'stopping') adoptions.push(this.#finishInterruptedEnd(sandbox));
      else if (state === 'pending' || state === 'starting') {
        pending.push(sandbox);
        adoptions.push(sandbox.undoInterruptedStart());
      }
    }
    const settled = await Promise.allSettled(adoptions);
    for (const result of settled) {
      if (result.status === 'rejected') this.log.error({ err: result.reason }, 'adopting a sandbox failed');
    }
    for (const name of strays)
      await rm(join(this.parts.records.root, name), { recursive: true, force: true });
    await this.reap();
    for (const sandbox of pending) sandbox.begin();
  }

  /**
   * Ends every machine and removes every network, hold and limit that no sandbox of ours names. Starts go on
   * meanwhile, so each is asked about when it has been seen, never before.
   */
  async reap(): Promise<void> {
    const killed = await killStrayMachines(
      this.parts.records.root,
      (id, pid) => this.#all.get(id)?.ownsProcess(pid) ?? false,
    );
    if (killed.length > 0) this.log.warn({ pids: killed }, 'ended machines that belong to no sandbox');
    const isLive = (id: string) => {
      const sandbox = this.#all.get(id);
      return sandbox !== undefined && !isOver(sandbox.report);
    };
    for (const holder of await this.parts.images.holders()) {
      if (!isLive(holder)) await this.parts.images.release(holder);
    }
    await this.parts.cpuLimits.reap(isLive);
    await this.parts.networks.reap();
  }

  /**
   * Accepts a sandbox, or answers what is known of it.
   * @throws SandboxConflictError for a lower generation, or one that was ended here
   */
  async put(spec: NodeSandboxSpec): Promise<SandboxReport> {
    const ended = this.#tombstones.get(spec.sandboxId) ?? -1;
    if (spec.generation <= ended) {
      throw new SandboxConflictError(
        `generation ${spec.generation} of ${spec.sandboxId} was ended on this node`,
      );
    }
    const known = this.#all.get(spec.sandboxId);
    if (known) {
      if (spec.generation === known.spec.generation) return known.report;
      if (spec.generation < known.spec.generation || !isOver(known.report)) {
        throw new SandboxConflictError(`${spec.sandboxId} is here with generation ${known.spec.generation}`);
      }
    }
    const record: SandboxRecord = {
      form: 1,
      spec,
      report: { sandboxId: spec.sandboxId, generation: spec.generation, state: 'pending', timings: {} },
    };
    const sandbox = this.#add(record);
    try {
      await this.parts.records.write(record);
    } catch (error) {
      // Not begun, so not here: the same request must be able to begin it once there is room. Its folder goes first.
      await this.parts.records.remove(spec.sandboxId).catch(() => undefined);
      this.#all.delete(spec.sandboxId);
      throw error;
    }
    sandbox.begin();
    return sandbox.report;
  }

  /** Ends it for good. A sandbox that is not here is answered as stopped, and refused should its start still arrive. */
  async delete(sandboxId: string, generation: number): Promise<SandboxReport> {
    const sandbox = this.#all.get(sandboxId);
    if (!sandbox) {
      this.#bury(sandboxId, generation);
      return {
        sandboxId,
        generation,
        state: 'stopped',
        reason: 'DELETED',
        timings: {},
        endedAtUnixMs: Date.now(),
      };
    }
    if (generation < sandbox.spec.generation) {
      throw new SandboxConflictError(`${sandboxId} is here with generation ${sandbox.spec.generation}`);
    }
    if (!isOver(sandbox.report)) {
      await sandbox.end({ reason: 'DELETED', message: 'The sandbox was deleted.' });
    }
    return sandbox.report;
  }

  /** The control plane has recorded the end: forget it. */
  async acknowledge(sandboxId: string, generation: number): Promise<void> {
    const sandbox = this.#all.get(sandboxId);
    if (!sandbox || sandbox.spec.generation > generation || !isOver(sandbox.report)) return;
    this.#bury(sandboxId, sandbox.spec.generation);
    this.#all.delete(sandboxId);
    await this.parts.records.remove(sandboxId);
  }

  get(sandboxId: string): Sandbox | undefined {
    return this.#all.get(sandboxId);
  }

  list(): Sandbox[] {
    return [...this.#all.values()];
  }

  /** Ends all, at once. */
  async endAll(message: string): Promise<void> {
    await Promise.all(
      this.list()
        .filter((sandbox) => !isOver(sandbox.report))
        .map((sandbox) => sandbox.end({ reason: 'DELETED', message })),
    );
  }

  /** Lets go of all machines without ending them. */
  detachAll(): void {
    for (const sandbox of this.#all.values()) sandbox.detach();
  }

  #add(record: SandboxRecord): Sandbox {
    const sandbox = new Sandbox(record, this.parts, this.log, (report) => this.hub.publish(report));
    this.#all.set(record.spec.sandboxId, sandbox);
    return sandbox;
  }

  async #finishInterruptedEnd(sandbox: Sandbox): Promise<void> {
    await sandbox.undoInterruptedStart();
    await this.parts.images.release(sandbox.id);
    await sandbox.end({ reason: 'DELETED', message: 'The sandbox was deleted.' });
  }

  #bury(sandboxId: string, generation: number): void {
    this.#tombstones.set(sandboxId, Math.max(generation, this.#tombstones.get(sandboxId) ?? -1));
    if (this.#tombstones.size > maxTombstones) {
      for (const oldest of this.#tombstones.keys()) {
        this.#tombstones.delete(oldest);
        break;
      }
    }
  }
}

function isOver(report: SandboxReport): boolean {
  return report.state === 'stopped' || report.state === 'failed';
}
