import { expect, it } from 'vitest';
import { Semaphore } from './semaphore.js';

const never = new AbortController().signal;

it('runs at most as many as it has slots, and all in the end', async () => {
  const semaphore = new Semaphore(2);
  let running = 0;
  let most = 0;
  const work = async () => {
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running -= 1;
  };
  await Promise.all(Array.from({ length: 7 }, () => semaphore.run(never, work)));
  expect(most).toBe(2);
  expect(running).toBe(0);
});

it('lets a waiter go on abort, and gives its slot to the next', async () => {
  const semaphore = new Semaphore(1);
  let release = () => {};
  const first = semaphore.run(never, () => new Promise<void>((resolve) => (release = resolve)));
  const abort = new AbortController();
  const second = semaphore.run(abort.signal, async () => 'second');
  const third = semaphore.run(never, async () => 'third');
  abort.abort(new Error('deleted'));
  await expect(second).rejects.toThrow('deleted');
  release();
  await first;
  expect(await third).toBe('third');
});

it('frees the slot when the work fails', async () => {
  const semaphore = new Semaphore(1);
  await expect(semaphore.run(never, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(await semaphore.run(never, async () => 1)).toBe(1);
});
