/** Joins the caller's AbortSignal with a time limit for one attempt of a request. */
import { DeadlineError } from '../errors.js';

/** Runs `work` with a signal that fires on either; its timer and listener are gone afterwards. */
export async function withDeadline<T>(
  what: string,
  timeoutMs: number,
  outer: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const forward = () => controller.abort(outer?.reason);
  if (outer?.aborted) forward();
  outer?.addEventListener('abort', forward, { once: true });
  const timer = setTimeout(() => {
    controller.abort(
      new DeadlineError(`${what}: no answer within ${timeoutMs / 1000} s`, { code: 'DEADLINE_EXCEEDED' }),
    );
  }, timeoutMs);
  try {
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
    outer?.removeEventListener('abort', forward);
  }
}
