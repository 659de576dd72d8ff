import { expect, it } from 'vitest';
import { Waiters } from './waiters.js';

const never = new AbortController().signal;
const late = () => new Error('late');

it('lets all go when it runs, or tells all why it does not', async () => {
  const waiters = new Waiters();
  const waiting = [waiters.wait(1_000, late, never), waiters.wait(1_000, late, never)];
  expect(waiters.any).toBe(true);
  waiters.release();
  await Promise.all(waiting);
  expect(waiters.any).toBe(false);
  const failing = waiters.wait(1_000, late, never);
  waiters.fail(new Error('no'));
  await expect(failing).rejects.toThrow('no');
});

it('gives up after its time, or when its client goes away', async () => {
  const waiters = new Waiters();
  await expect(waiters.wait(5, late, never)).rejects.toThrow('late');
  const abort = new AbortController();
  const waiting = waiters.wait(1_000, late, abort.signal);
  abort.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await expect(waiters.wait(1_000, late, abort.signal)).rejects.toThrow('gone');
  expect(waiters.any).toBe(false);
});
