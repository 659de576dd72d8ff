/**
 * Carries out what reports from nodes mean (`domain/report.ts` decides). The only place where facts
 * about machines enter records. Called by the report stream, and with the answers to commands.
 */
import type { NodeInfo, SandboxReport } from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { SandboxRecord } from '../domain/record.js';
import { judgeReport, type ReportVerdict } from '../domain/report.js';
import type { SandboxState } from '../domain/states.js';
import { transition } from '../domain/transition.js';
import type { Fleet } from '../nodes/fleet.js';
import type { LinkListener } from '../nodes/node-link.js';
import { saveNode } from '../store/nodes.js';
import { findInStates } from '../store/sandboxes.js';
import type { Store } from '../store/store.js';
import type { Dispatcher } from './dispatch.js';
import { type Lifecycle, mayTakePolicy } from './lifecycle.js';
import type { Resumes } from './resumes.js';

/** How long a node may hold a sandbox that has no record before it is told to remove it. */
const unknownGraceMs = 60_000;

/** States in which a node is expected to know a sandbox. */
const onNodeStates: readonly SandboxState[] = [
  'pending',
  'starting',
  'running',
  'snapshotting',
  'pausing',
  'paused',
  'resuming',
  'stopping',
  'lost',
];

/** Most sandboxes looked at in one pass. */
const maxRecords = 100_000;

/** What reports act upon. */
export interface ReportParts {
  store: Store;
  fleet(): Fleet;
  dispatcher(): Dispatcher;
  lifecycle(): Lifecycle;
  resumes(): Resumes;
  /** Called when a node is in step again: commands that it missed are due. */
  onInStep(): void;
  log: Logger;
  now(): number;
}

/** Takes in reports. */
export class Reports implements LinkListener {
  readonly #unknownSince = new Map<string, number>();
  readonly #removing = new Set<string>();

  constructor(private readonly parts: ReportParts) {}

  async onInfo(info: NodeInfo): Promise<void> {
    await saveNode(this.parts.store.db, info, this.parts.now());
  }

  async onReport(nodeId: string, report: SandboxReport): Promise<void> {
    let verdict: ReportVerdict | undefined;
    const change = await this.parts.store.change(report.sandboxId, (record) => {
      verdict = judgeReport(record, report, nodeId, this.parts.now());
      return verdict.kind === 'write' ? verdict.record : undefined;
    });
    verdict ??= judgeReport(undefined, report, nodeId, this.parts.now());
    if (verdict.kind !== 'remove') this.#unknownSince.delete(report.sandboxId);
    switch (verdict.kind) {
      case 'write':
        if (change !== undefined) this.#followUp(nodeId, change.before, change.after);
        break;
      case 'acknowledge':
        this.#acknowledge(nodeId, report);
        break;
      case 'remove':
        this.#removeStray(nodeId, report, verdict.why, change === undefined);
        break;
      case 'ignore':
        this.parts.log.info(
          { sandboxId: report.sandboxId, nodeId, why: verdict.why },
          'a report was ignored',
        );
        break;
      case 'same':
        break;
    }
    if (verdict.kind === 'write' || verdict.kind === 'same') {
      if (report.wanted) this.#wake(report.sandboxId);
      else this.parts.resumes().unwant(report.sandboxId);
    }
  }

  /** A request waits at the node for a sandbox that is paused. */
  #wake(sandboxId: string): void {
    this.parts
      .resumes()
      .want(sandboxId)
      .catch((error: unknown) =>
        this.parts.log.error(
          { err: error, sandboxId },
          'a sandbox could not be woken; reconcile will try again',
        ),
      );
  }

  async onSynced(nodeId: string, seen: ReadonlySet<string>, openedAt: number): Promise<void> {
    await this.compare(nodeId, seen, openedAt);
    this.parts.onInStep();
  }

  /** What the node should know but did not report was lost there: start it again, or record its end. */
  async compare(nodeId: string, seen: ReadonlySet<string>, openedAt: number): Promise<void> {
    const records = await findInStates(this.parts.store.db, onNodeStates, maxRecords);
    for (const record of records) {
      if (record.nodeId !== nodeId || seen.has(record.id)) continue;
      // Accepted after the list was made: it is simply not in it.
      if (record.acceptedAt !== null && record.acceptedAt >= openedAt) continue;
      await this.#onForgotten(record);
    }
  }

  async #onForgotten(record: SandboxRecord): Promise<void> {
    const { store, lifecycle, log, now } = this.parts;
    switch (record.state) {
      case 'pending':
      case 'starting':
        void lifecycle().start(record.id, { again: true });
        return;
      case 'stopping':
        void lifecycle().remove(record.id);
        return;
      default: {
        log.warn(
          { sandboxId: record.id, nodeId: record.nodeId },
          'the node no longer knows a running sandbox',
        );
        const message =
          'Its node no longer knows it: the machine did not outlive a crash or a reboot of the host.';
        const change = await store.change(record.id, (current) =>
          current.state === record.state
            ? transition(current, 'failed', now(), { reason: 'MACHINE_ENDED', message })
            : undefined,
        );
        if (change !== undefined) this.parts.dispatcher().kick();
      }
    }
  }

  #followUp(nodeId: string, before: SandboxRecord, after: SandboxRecord): void {
    if (after.state !== before.state)
      this.parts.log.info(
        {
          sandboxId: after.id,
          nodeId,
          from: before.state,
          to: after.state,
          reason: after.reason ?? undefined,
        },
        'sandbox changed state',
      );
    // Its node has not heard of its resume; reconcile would tell it a moment later.
    if (after.state === 'resuming' && after.acceptedAt === null) void this.parts.lifecycle().resume(after.id);
    // A paused one has given most of its room back.
    if (after.state === 'paused' && before.state !== 'paused') this.parts.dispatcher().kick();
    if (after.endedAt !== null) {
      this.#acknowledge(nodeId, { sandboxId: after.id, generation: after.generation });
      this.parts.dispatcher().kick();
    } else if (mayTakePolicy(after.state) && after.egressApplied < after.egress.generation) {
      void this.parts.lifecycle().pushEgress(after.id);
    }
  }

  #acknowledge(
    nodeId: string,
    { sandboxId, generation }: Pick<SandboxReport, 'sandboxId' | 'generation'>,
  ): void {
    const client = this.parts.fleet().link(nodeId)?.client;
    // Should this fail, the node reports the end again when we next connect.
    client?.acknowledge(sandboxId, generation).catch((error: unknown) => {
      this.parts.log.debug({ err: error, sandboxId }, 'an end could not be acknowledged');
    });
  }

  /** A node holds what it should not. Without any record we wait first: a database put back by mistake must not cost machines at once. */
  #removeStray(nodeId: string, report: SandboxReport, why: string, unknown: boolean): void {
    const { sandboxId: id, generation } = report;
    const now = this.parts.now();
    if (unknown && why === 'no record of it exists') {
      const since = this.#unknownSince.get(id) ?? now;
      this.#unknownSince.set(id, since);
      if (now - since < unknownGraceMs) return;
    }
    const client = this.parts.fleet().link(nodeId)?.client;
    if (client === undefined || this.#removing.has(id)) return;
    this.#removing.add(id);
    this.parts.log.warn({ sandboxId: id, nodeId, why }, 'removing a sandbox from a node');
    client
      .remove(id, generation)
      .then(() => client.acknowledge(id, generation))
      .then(() => this.#unknownSince.delete(id))
      .catch((error: unknown) =>
        this.parts.log.warn({ err: error, sandboxId: id }, 'it could not be removed'),
      )
      .finally(() => this.#removing.delete(id));
  }
}
