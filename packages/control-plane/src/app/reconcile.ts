/**
 * The periodic pass that makes records and world agree: deadlines of states, commands that did not
 * arrive, lost nodes, retention. It only repeats and times out; it never invents facts.
 */
import type { Logger } from 'pino';
import type { SandboxRecord } from '../domain/record.js';
import {
  endedRetentionMs,
  lostAfterMs,
  lostGraceMs,
  overdueAfterMs,
  queueLimitMs,
  type SandboxState,
  sandboxStates,
} from '../domain/states.js';
import { requestStop, transition } from '../domain/transition.js';
import type { Fleet } from '../nodes/fleet.js';
import { purgeBuilds } from '../store/image-builds.js';
import { findInStates, isAnyQueued, purgeEnded } from '../store/sandboxes.js';
import type { Store } from '../store/store.js';
import type { Reports } from './apply-report.js';
import type { CheckpointWork } from './checkpoint-work.js';
import type { Dispatcher } from './dispatch.js';
import { type Lifecycle, mayTakePolicy } from './lifecycle.js';
import type { Resumes } from './resumes.js';

/** What a pass acts upon. */
export interface ReconcileParts {
  store: Store;
  fleet: Fleet;
  dispatcher: Dispatcher;
  lifecycle: Lifecycle;
  resumes: Resumes;
  checkpoints: CheckpointWork;
  reports: Reports;
  log: Logger;
  now(): number;
}

/** Few at any time: looked at in every pass. */
const restlessStates: readonly SandboxState[] = ['pending', 'starting', 'resuming', 'stopping', 'lost'];
/** Many, and seldom in need of anything: looked at in every sixth pass, or when a node is silent. */
const calmStates: readonly SandboxState[] = ['running', 'snapshotting', 'pausing', 'paused'];
const calmEvery = 6;

const maxRecords = 100_000;

/** Runs the passes. */
export class Reconciler {
  #timer: NodeJS.Timeout | undefined;
  #pass: Promise<void> | undefined;
  #count = 0;
  readonly #startedAt: number;

  constructor(private readonly parts: ReconcileParts) {
    this.#startedAt = parts.now();
  }

  /** Begins. */
  start(intervalMs: number): void {
    this.#timer = setInterval(() => void this.run(), intervalMs);
  }

  /** One pass; two never overlap. */
  run(): Promise<void> {
    this.#pass ??= this.#run()
      .catch((error: unknown) =>
        this.parts.log.error({ err: error }, 'a reconcile pass failed; the next will try again'),
      )
      .finally(() => {
        this.#pass = undefined;
      });
    return this.#pass;
  }

  /** Ends; waits for a pass that runs. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#pass;
  }

  async #run(): Promise<void> {
    const thorough = this.#count++ % calmEvery === 0;
    const silent = this.parts.fleet.links.some((link) => !link.connected);
    const states = thorough || silent ? [...restlessStates, ...calmStates] : restlessStates;
    for (const record of await findInStates(this.parts.store.db, states, maxRecords))
      await this.#look(record);
    await this.parts.resumes.retry();
    await this.parts.checkpoints.reconcile(thorough);
    // Before the nodes are asked, too: one that hangs must not hold up placement by what is known.
    this.parts.dispatcher.kick();
    if (thorough || (await isAnyQueued(this.parts.store.db))) {
      await this.#refreshOffers();
      this.parts.dispatcher.kick();
    }
    if (!thorough) return;
    await this.#compareNodes();
    const before = this.parts.now() - endedRetentionMs;
    const purged = await purgeEnded(this.parts.store.db, before);
    await purgeBuilds(this.parts.store.db, before);
    if (purged > 0) this.parts.log.info({ purged }, 'removed records of sandboxes that ended long ago');
  }

  /** Room on a disk comes and goes without a word of ours. */
  async #refreshOffers(): Promise<void> {
    const refreshed = await Promise.allSettled(
      this.parts.fleet.links.filter((link) => link.connected).map((link) => link.refresh()),
    );
    for (const result of refreshed)
      if (result.status === 'rejected')
        this.parts.log.warn({ err: result.reason }, 'a node did not say what it offers');
  }

  async #look(record: SandboxRecord): Promise<void> {
    const { store, lifecycle, now } = this.parts;
    const decided = await store.change(record.id, (current) => this.#decide(current, now()));
    const after = decided?.after ?? record;
    if (decided !== undefined && decided.after.state !== decided.before.state)
      this.parts.log.info(
        {
          sandboxId: after.id,
          from: decided.before.state,
          to: after.state,
          reason: after.reason ?? undefined,
        },
        'reconcile changed a sandbox',
      );
    if (after.nodeId === null || !this.#connected(after.nodeId)) return;
    if (after.state === 'pending' && after.acceptedAt === null) void lifecycle.start(after.id);
    if (after.state === 'resuming' && after.acceptedAt === null) void lifecycle.resume(after.id);
    if (after.state === 'stopping') void lifecycle.remove(after.id);
    if (mayTakePolicy(after.state) && after.egressApplied < after.egress.generation)
      void lifecycle.pushEgress(after.id);
  }

  /** What a record becomes by the mere passing of time. */
  #decide(record: SandboxRecord, now: number): SandboxRecord | undefined {
    const age = now - record.stateSince;
    if (record.state === 'pending' && record.nodeId === null)
      return now - record.createdAt > queueLimitMs ? requestStop(record, 'CAPACITY', now) : undefined;
    if (record.state === 'lost') {
      const ended = this.#decideDeadline(record, age, now);
      // Written anew so that its wire status, by which lists filter, follows the time.
      return ended ?? (isNewlyExpired(record, now) ? { ...record, updatedAt: now } : undefined);
    }
    if (record.nodeId !== null && this.#isSilent(record.nodeId, now)) {
      const lost = transition(record, 'lose', now);
      if (lost !== undefined) return lost;
    }
    if (record.deadlineAt !== null && now > record.deadlineAt + overdueAfterMs && record.state !== 'stopping')
      return requestStop(record, 'TIMEOUT', now);
    return this.#decideDeadline(record, age, now);
  }

  #decideDeadline(record: SandboxRecord, age: number, now: number): SandboxRecord | undefined {
    const limit = sandboxStates[record.state].deadlineMs;
    if (limit === null || age <= limit) return undefined;
    if (record.state === 'lost') return requestStop(record, 'NODE_LOST', now);
    if (record.state === 'snapshotting' || record.state === 'pausing') return undefined;
    const message = `It did not come further than "${record.state}" within ${limit / 60_000} minutes.`;
    return requestStop(record, 'START_FAILED', now, { message });
  }

  #connected(nodeId: string): boolean {
    return this.parts.fleet.link(nodeId)?.connected ?? false;
  }

  #isSilent(nodeId: string, now: number): boolean {
    const link = this.parts.fleet.link(nodeId);
    const since = link === undefined ? this.#startedAt : link.downSince;
    return since !== null && now - since > lostAfterMs;
  }

  /** The stream should have said it all; this finds what it did not. */
  async #compareNodes(): Promise<void> {
    for (const link of this.parts.fleet.links) {
      if (!link.connected || link.info === undefined) continue;
      const { nodeId } = link.info;
      try {
        await link.refresh();
        const openedAt = this.parts.now();
        const reports = await link.client.list();
        for (const report of reports) await this.parts.reports.onReport(nodeId, report);
        await this.parts.reports.onSynced(
          nodeId,
          new Set(reports.map((report) => report.sandboxId)),
          openedAt,
        );
      } catch (error) {
        this.parts.log.warn(
          { err: error, nodeId },
          'comparing with a node failed; the next pass will try again',
        );
      }
    }
  }
}

/** Its grace is over, and it was last written before that. */
function isNewlyExpired(record: SandboxRecord, now: number): boolean {
  const expiresAt = record.stateSince + lostGraceMs;
  return now >= expiresAt && record.updatedAt < expiresAt;
}
