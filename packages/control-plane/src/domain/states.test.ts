import type { EndReason, SandboxReport } from '@sandlot/protocol';
import { endings } from '@sandlot/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sampleRecord } from '../../tests/sample-record.js';
import type { SandboxRecord } from './record.js';
import { judgeReport } from './report.js';
import { isEnded, lostGraceMs, type SandboxEvent, type SandboxState, sandboxStates } from './states.js';
import { nextState, requestStop, transition } from './transition.js';
import { wireStatus } from './wire-status.js';

const states = Object.keys(sandboxStates) as SandboxState[];
const events = [
  ...new Set(states.flatMap((state) => Object.keys(sandboxStates[state].next))),
] as SandboxEvent[];
const reasons = Object.keys(endings) as EndReason[];

describe('the table', () => {
  it('is documented and every state but an end can be left', () => {
    for (const state of states) {
      const row = sandboxStates[state];
      for (const text of [row.truth, row.endedBy, row.deadline]) expect(text.length).toBeGreaterThan(5);
      expect(Object.keys(row.next).length === 0).toBe(isEnded(state));
    }
  });

  it('every state can be reached from pending', () => {
    const reached = new Set<SandboxState>(['pending']);
    for (const state of reached)
      for (const next of Object.values(sandboxStates[state].next)) reached.add(next);
    expect([...reached].sort()).toEqual([...states].sort());
  });

  it('every live state can be deleted, and ends by the node’s word', () => {
    for (const state of states.filter((one) => !isEnded(one))) {
      expect([state, nextState(state, 'stop') ?? (state === 'stopping' ? 'stopping' : undefined)]).toEqual([
        state,
        'stopping',
      ]);
      expect(nextState(state, 'stopped')).toBe('stopped');
      expect(nextState(state, 'failed')).toBe('failed');
    }
  });

  it('nothing leads from stopping back to life: a delete wins', () => {
    expect(Object.values(sandboxStates.stopping.next).every(isEnded)).toBe(true);
  });
});

describe('transition', () => {
  it('moves by the table only, keeps its input, and stamps the time', () => {
    for (const state of states)
      for (const event of events) {
        const record = consistent(state);
        const copy = structuredClone(record);
        const moved = transition(record, event, 5_000, { reason: 'DELETED', nodeId: 'node-1' });
        expect(record).toEqual(copy);
        expect(moved?.state).toBe(sandboxStates[state].next[event]);
        if (moved !== undefined) expect(moved).toMatchObject({ stateSince: 5_000, updatedAt: 5_000 });
        if (moved !== undefined && isEnded(moved.state)) expect(moved.endedAt).toBe(5_000);
      }
  });

  it('a breach of an invariant is a bug, not a record', () => {
    expect(() => transition(sampleRecord(), 'ran', 1)).toThrow(/without a node/);
    expect(() => transition(sampleRecord(), 'failed', 1)).toThrow(/without a reason/);
  });

  it('a stop keeps the first reason; one that no node knows ends at once', () => {
    expect(requestStop(sampleRecord(), 'DELETED', 9)).toMatchObject({ state: 'stopped', endedAt: 9 });
    expect(requestStop(sampleRecord(), 'CAPACITY', 9)).toMatchObject({ state: 'failed', reason: 'CAPACITY' });
    const running = consistent('running');
    expect(requestStop(running, 'TIMEOUT', 9)).toMatchObject({ state: 'stopping', reason: 'TIMEOUT' });
    expect(requestStop({ ...running, reason: 'TIMEOUT' }, 'DELETED', 9)?.reason).toBe('TIMEOUT');
    expect(requestStop(consistent('failed'), 'DELETED', 9)).toBeUndefined();
  });
});

describe('wire status', () => {
  it('has a name for every state, live ones and ended ones apart', () => {
    for (const state of states) {
      const status = wireStatus(consistent(state), 1_000);
      const over = ['TERMINATED', 'TIMEOUT', 'ERROR'].includes(status);
      expect([state, over]).toEqual([state, isEnded(state) || state === 'stopping']);
    }
  });

  it('a failure is never told as a normal end', () => {
    for (const reason of reasons)
      expect(wireStatus({ ...consistent('failed'), reason }, 0)).not.toBe('TERMINATED');
  });

  it('lost is RUNNING for its grace', () => {
    const lost = { ...consistent('lost'), stateSince: 0 };
    expect([wireStatus(lost, lostGraceMs - 1), wireStatus(lost, lostGraceMs)]).toEqual(['RUNNING', 'ERROR']);
  });
});

describe('reports', () => {
  it('of a lower or unknown generation, or of another node, never touch a record', () => {
    const record = { ...consistent('running'), generation: 2 };
    for (const generation of [0, 1, 3])
      expect(judgeReport(record, report({ generation }), 'node-1', 9).kind).toBe('ignore');
    expect(judgeReport(record, report({ generation: 2 }), 'node-2', 9).kind).toBe('remove');
    expect(judgeReport(record, report({ generation: 2, state: 'stopped' }), 'node-2', 9).kind).toBe(
      'acknowledge',
    );
    expect(judgeReport(undefined, report({}), 'node-1', 9).kind).toBe('remove');
  });

  it('bring a lost one back', () => {
    const verdict = judgeReport(consistent('lost'), report({ state: 'running' }), 'node-1', 9);
    expect(verdict).toMatchObject({ kind: 'write', ended: false, record: { state: 'running' } });
  });

  it('whatever comes in whatever order: an end is final, a stop is never undone, and the rest never goes back', () => {
    fc.assert(
      fc.property(fc.array(anyStep(), { maxLength: 30 }), (steps) => {
        let record: SandboxRecord = { ...sampleRecord(), nodeId: 'node-1', placedAt: 1_000 };
        let now = 1_000;
        for (const step of steps) {
          now += 10;
          const before = record;
          if (step === 'delete') record = requestStop(record, 'DELETED', now, { deletedAt: now }) ?? record;
          else if (step === 'lose') record = transition(record, 'lose', now) ?? record;
          else {
            const verdict = judgeReport(record, step, 'node-1', now);
            if (verdict.kind === 'write') {
              expect(verdict.ended).toBe(isEnded(verdict.record.state));
              record = verdict.record;
            } else if (verdict.kind === 'remove') expect(isEnded(record.state)).toBe(true);
          }
          if (isEnded(before.state)) expect(record).toEqual(before);
          if (before.state === 'stopping') expect(['stopping', 'stopped', 'failed']).toContain(record.state);
          if (before.state === 'running') expect(['pending', 'starting']).not.toContain(record.state);
          if (before.deletedAt !== null) expect(['stopping', 'stopped']).toContain(record.state);
          if (record.state === 'running' && before.state !== 'running')
            expect(record.startedAt).not.toBeNull();
        }
      }),
      { numRuns: 500 },
    );
  });
});

function anyStep(): fc.Arbitrary<'delete' | 'lose' | SandboxReport> {
  const reported = fc
    .record({
      state: fc.constantFrom(
        ...(['pending', 'starting', 'running', 'pausing', 'paused', 'resuming'] as const),
        ...(['stopping', 'stopped', 'failed'] as const),
      ),
      generation: fc.constantFrom(0, 1, 1, 1, 1),
      reason: fc.option(fc.constantFrom(...reasons), { nil: undefined }),
      stage: fc.option(fc.constantFrom('image', 'restore', 'mount'), { nil: undefined }),
    })
    .map((change) => report(change as Partial<SandboxReport>));
  return fc.oneof(
    { weight: 1, arbitrary: fc.constantFrom('delete' as const, 'lose' as const) },
    { weight: 6, arbitrary: reported },
  );
}

function report(change: Partial<SandboxReport>): SandboxReport {
  return { sandboxId: 'sandbox-1', generation: 1, state: 'running', timings: {}, ...change };
}

/** A record that may be in a state. */
function consistent(state: SandboxState): SandboxRecord {
  const over = isEnded(state) || state === 'stopping';
  return sampleRecord({
    state,
    nodeId: 'node-1',
    reason: over ? (state === 'failed' ? 'MACHINE_ENDED' : 'DELETED') : null,
    endedAt: isEnded(state) ? 1_000 : null,
  });
}
