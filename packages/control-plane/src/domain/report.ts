/**
 * What a report from a node means for a record. Pure; `app/apply-report.ts` carries it out. The
 * only way for facts about a machine to enter a record.
 */
import type { SandboxReport } from '@sandlot/protocol';
import type { SandboxRecord } from './record.js';
import { isEnded, type SandboxEvent } from './states.js';
import { endsClean, type Patch, transition } from './transition.js';

/** What to do about a report. */
export type ReportVerdict =
  /** Write this record; `ended`: its room is free, tell the node that the end is recorded. */
  | { kind: 'write'; record: SandboxRecord; ended: boolean }
  /** Nothing new. */
  | { kind: 'same' }
  /** The end is recorded already: tell the node so. */
  | { kind: 'acknowledge' }
  /** The node holds what should not be there: delete it there. */
  | { kind: 'remove'; why: string }
  /** Of an older machine, or from a node that does not own the sandbox. */
  | { kind: 'ignore'; why: string };

/** Judges one report. */
export function judgeReport(
  record: SandboxRecord | undefined,
  report: SandboxReport,
  nodeId: string,
  now: number,
): ReportVerdict {
  const over = report.state === 'stopped' || report.state === 'failed';
  if (record === undefined)
    return over ? { kind: 'acknowledge' } : { kind: 'remove', why: 'no record of it exists' };
  if (record.nodeId !== nodeId)
    return over ? { kind: 'acknowledge' } : { kind: 'remove', why: 'its record names another node' };
  if (report.generation < record.generation) return judgeOlder(record, report, now);
  if (report.generation > record.generation)
    return { kind: 'ignore', why: 'it is of a generation that was never given out' };
  if (isEnded(record.state))
    return over ? { kind: 'acknowledge' } : { kind: 'remove', why: 'its record has ended' };
  const moved = over ? applyEnd(record, report, now) : applyProgress(record, report, now);
  if (moved === undefined) return { kind: 'same' };
  return { kind: 'write', record: moved, ended: isEnded(moved.state) };
}

/** Of a lower generation nothing counts, but that a node which still has that one paused has no newer one. */
function judgeOlder(record: SandboxRecord, report: SandboxReport, now: number): ReportVerdict {
  const isUnheard = record.state === 'lost' || (record.state === 'resuming' && record.acceptedAt !== null);
  // One that runs there is to be rolled back, and was not asked to yet.
  const isOlder = report.state === 'paused' || (report.state === 'running' && Boolean(record.rollback));
  const moved = isOlder && isUnheard ? transition(record, 'unheard', now, { acceptedAt: null }) : undefined;
  if (moved === undefined) return { kind: 'ignore', why: 'it is of a lower generation' };
  return { kind: 'write', record: moved, ended: false };
}

function applyEnd(record: SandboxRecord, report: SandboxReport, now: number): SandboxRecord | undefined {
  const reason = record.reason ?? report.reason ?? (report.state === 'failed' ? 'MACHINE_ENDED' : 'DELETED');
  const patch: Patch = {
    ...facts(record, report, now),
    reason,
    message: record.message ?? report.message ?? null,
    endedAt: report.endedAtUnixMs ?? now,
    logTail: report.logTail ?? record.logTail,
  };
  return transition(record, endsClean(reason) ? 'stopped' : 'failed', now, patch);
}

function applyProgress(record: SandboxRecord, report: SandboxReport, now: number): SandboxRecord | undefined {
  const patch = facts(record, report, now);
  const event = eventOf[report.state];
  const moved =
    event === undefined ? undefined : transition(record, event, now, { ...patch, ...milestones(report) });
  if (moved !== undefined) return moved;
  // A late report of an earlier stage (an answer that crossed with the stream) must not undo a later one.
  if (rank(report.state) < rank(record.state)) return acceptOnly(record, now);
  return changed(record, patch) ? { ...record, ...patch, updatedAt: now } : undefined;
}

/** What a node's word for a live sandbox says has happened. */
const eventOf: Partial<Record<SandboxReport['state'], SandboxEvent>> = {
  starting: 'started',
  running: 'ran',
  pausing: 'pause',
  paused: 'paused',
};

function milestones(report: SandboxReport): Patch {
  if (report.state !== 'running') return {};
  return {
    stage: null,
    imageBuildId: null,
    message: null,
    rollback: null,
    ...(report.startedAtUnixMs === undefined ? {} : { startedAt: report.startedAtUnixMs }),
  };
}

function acceptOnly(record: SandboxRecord, now: number): SandboxRecord | undefined {
  return record.acceptedAt === null ? { ...record, acceptedAt: now, updatedAt: now } : undefined;
}

const ranks: Record<string, number> = { pending: 0, starting: 1, running: 2, lost: 2, stopping: 3 };

function rank(state: string): number {
  return ranks[state] ?? 2;
}

/** The facts of a report as fields of a record. */
function facts(record: SandboxRecord, report: SandboxReport, now: number): Patch {
  const running = report.state === 'running';
  return {
    acceptedAt: record.acceptedAt ?? now,
    stage: running ? null : (report.stage ?? null),
    imageBuildId: running ? null : (report.imageBuildId ?? null),
    imageDigest: report.imageDigest ?? record.imageDigest,
    timings: mergeTimings(record, report),
    startedAt: report.startedAtUnixMs ?? record.startedAt ?? (running ? now : null),
    exitCode: report.exitCode ?? record.exitCode,
    egressApplied: Math.max(record.egressApplied, report.egressGeneration ?? 0),
    warnings: report.warnings ?? record.warnings,
    // Why it could not be resumed. Of an end, see applyEnd.
    ...(report.state === 'paused' ? { message: report.message ?? null } : {}),
  };
}

/** The node's stages; `queue` is the wait for a node and the node's own together. */
function mergeTimings(record: SandboxRecord, report: SandboxReport): SandboxRecord['timings'] {
  const waited = record.placedAt === null ? 0 : record.placedAt - record.createdAt;
  return { ...record.timings, ...report.timings, queue: waited + (report.timings.queue ?? 0) };
}

function changed(record: SandboxRecord, patch: Patch): boolean {
  return Object.entries(patch).some(
    ([key, value]) => JSON.stringify(record[key as keyof SandboxRecord]) !== JSON.stringify(value),
  );
}
