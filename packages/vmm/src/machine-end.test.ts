/** Holds the explanation of ends: one case for each cause. */
import { describe, expect, it } from 'vitest';
import { type EndEvidence, explainEnd } from './machine-end.js';
import { OomWatch, parseOomKills } from './process/oom-watch.js';

const nothing: EndEvidence = { requested: false, serialTail: '', stderrTail: '', hostKilledForMemory: false };
const killed = { code: null, signal: 'SIGKILL' } as const;

describe('explainEnd', () => {
  const cases: [string, Partial<EndEvidence>, string, RegExp][] = [
    ['a request', { requested: true, exit: killed }, 'requested', /request/],
    ['a request before all else', { requested: true, hostKilledForMemory: true }, 'requested', /request/],
    ['power off', { guestReason: 'guest-shutdown', exit: killed }, 'guest-shutdown', /powered itself off/],
    [
      'a panic, which resets',
      { guestReason: 'guest-panic', serialTail: '[1] Kernel panic - not syncing: Oops\r\n[1] x' },
      'guest-panic',
      /^Kernel panic - not syncing: Oops$/,
    ],
    ['a panic seen by a device', { guestReason: 'guest-panic' }, 'guest-panic', /panicked/],
    ['SIGKILL', { exit: killed }, 'killed', /killed from outside/],
    [
      'SIGKILL by the host',
      { exit: killed, hostKilledForMemory: true },
      'host-out-of-memory',
      /out of memory/,
    ],
    ['an unseen end', {}, 'killed', /killed/],
    ['an unseen end that said why', { stderrTail: 'qemu: boom' }, 'vmm-error', /boom/],
    ['SIGTERM', { exit: { code: null, signal: 'SIGTERM' } }, 'killed', /SIGTERM/],
    [
      'SIGTERM that QEMU took',
      { exit: { code: 0, signal: null }, stderrTail: 'qemu: terminating on signal 15 from pid 1 (init)' },
      'killed',
      /signal 15/,
    ],
    ['a crash', { exit: { code: null, signal: 'SIGSEGV' } }, 'vmm-error', /crashed \(SIGSEGV\)/],
    [
      'an error',
      { exit: { code: 1, signal: null }, stderrTail: 'qemu: bad' },
      'vmm-error',
      /status 1: qemu: bad/,
    ],
  ];
  for (const [title, evidence, cause, detail] of cases) {
    it(`knows ${title}`, () => {
      const end = explainEnd({ ...nothing, ...evidence });
      expect(end.cause).toBe(cause);
      expect(end.detail).toMatch(detail);
    });
  }
});

describe('OomWatch', () => {
  it('reads the kernel’s counter', () => {
    expect(parseOomKills('nr_free 5\noom_kill 12\nfoo 1\n')).toBe(12);
    expect(parseOomKills('nr_free 5\n')).toBe(0);
  });

  it('knows only of kills since it watches', () => {
    let kills = 3;
    const watch = new OomWatch(() => kills);
    kills = 4;
    expect(watch.hasKilledLately()).toBe(false);
    watch.enter();
    watch.enter();
    expect(watch.hasKilledLately()).toBe(false);
    kills = 5;
    expect(watch.hasKilledLately()).toBe(true);
    watch.leave();
    expect(watch.hasKilledLately()).toBe(true);
    watch.leave();
    expect(watch.hasKilledLately()).toBe(false);
  });
});
