import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Activity } from './activity.js';
import { Timeouts } from './timeouts.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function watch(
  limits: ConstructorParameters<typeof Timeouts>[0],
  activity: Activity,
  busy: () => Promise<boolean>,
) {
  const expired: string[] = [];
  const timeouts = new Timeouts(limits, activity, busy, (reason) => expired.push(reason));
  return { expired, timeouts };
}

const idle = async () => false;

it('ends at the deadline, once', async () => {
  const { expired } = watch({ deadlineUnixMs: Date.now() + 200_000 }, new Activity(), idle);
  await vi.advanceTimersByTimeAsync(199_000);
  expect(expired).toEqual([]);
  await vi.advanceTimersByTimeAsync(100_000);
  expect(expired).toEqual(['TIMEOUT']);
});

it('counts idle time from the last use', async () => {
  const activity = new Activity();
  const { expired } = watch({ idleTimeoutMs: 60_000 }, activity, idle);
  await vi.advanceTimersByTimeAsync(50_000);
  activity.begin()();
  await vi.advanceTimersByTimeAsync(50_000);
  expect(expired).toEqual([]);
  await vi.advanceTimersByTimeAsync(11_000);
  expect(expired).toEqual(['IDLE_TIMEOUT']);
});

it('is not idle while something is open, nor while the guest runs a session', async () => {
  const activity = new Activity();
  let busy = true;
  const { expired } = watch({ idleTimeoutMs: 60_000 }, activity, async () => busy);
  const done = activity.begin();
  await vi.advanceTimersByTimeAsync(300_000);
  done();
  await vi.advanceTimersByTimeAsync(300_000);
  expect(expired).toEqual([]);
  busy = false;
  await vi.advanceTimersByTimeAsync(130_000);
  expect(expired).toEqual(['IDLE_TIMEOUT']);
});

it('takes a guest that cannot answer for idle, and stops when closed', async () => {
  const first = watch({ idleTimeoutMs: 60_000 }, new Activity(), () => Promise.reject(new Error('gone')));
  const second = watch({ idleTimeoutMs: 60_000, deadlineUnixMs: Date.now() + 1_000 }, new Activity(), idle);
  second.timeouts.close();
  await vi.advanceTimersByTimeAsync(61_000);
  expect(first.expired).toEqual(['IDLE_TIMEOUT']);
  expect(second.expired).toEqual([]);
});
