/** Holds the guard: the first failure counts, whoever races, whenever. */
import { describe, expect, it } from 'vitest';
import { VmmError } from './driver.js';
import { startGuard } from './guarded.js';

const forever = new Promise<never>(() => {});

describe('a guard', () => {
  it('lets work through', async () => {
    const guard = startGuard(new AbortController().signal, 1000, 'it');
    expect(await guard.race(Promise.resolve(5))).toBe(5);
    await expect(guard.race(Promise.reject(new Error('own')))).rejects.toThrow('own');
    guard.dispose();
  });

  it('fails with what came first, and stays failed', async () => {
    const controller = new AbortController();
    const guard = startGuard(controller.signal, 1000, 'the start');
    guard.fail(new VmmError('start-failed', 'first'));
    controller.abort();
    await expect(guard.race(forever)).rejects.toThrow('first');
    await expect(guard.race(Promise.resolve(1))).rejects.toThrow('first');
    expect(guard.signal.aborted).toBe(true);
    guard.dispose();
  });

  it('names abort and deadline', async () => {
    const controller = new AbortController();
    const guard = startGuard(controller.signal, 1000, 'the start');
    setTimeout(() => controller.abort(new Error('why')), 5);
    await expect(guard.race(forever)).rejects.toMatchObject({ code: 'aborted', cause: new Error('why') });
    guard.dispose();
    const late = startGuard(new AbortController().signal, 10, 'the start');
    await expect(late.race(forever)).rejects.toMatchObject({
      code: 'timeout',
      message: 'the start took longer than 10 ms',
    });
    late.dispose();
  });

  it('fails at once for a signal that is aborted already', async () => {
    const guard = startGuard(AbortSignal.abort(), 1000, 'it');
    await expect(guard.race(forever)).rejects.toMatchObject({ code: 'aborted' });
    guard.dispose();
  });
});
