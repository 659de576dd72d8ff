/** Repeats an attempt after failures that may pass, with capped, jittered pauses. Used by every HTTP call of the SDK. */

import { AbortedError, ConnectionError, RateLimitError, SandlotError } from '../errors.js';
import { isDistrusted } from './connection-codes.js';

/** How often and how patiently. */
export interface RetryPolicy {
  /** Attempts after the first. */
  maxRetries: number;
  /** First pause; doubles up to `capMs`. */
  baseMs: number;
  capMs: number;
}

/** The usual policy: pauses of about 0.1, 0.2, 0.4 s, … and at most 5 s. */
export const defaultRetryPolicy: RetryPolicy = { maxRetries: 4, baseMs: 100, capMs: 5_000 };

/** Longest Retry-After that is obeyed; a longer one fails the call at once, for the caller to decide. */
const retryAfterCapMs = 60_000;

/** True when the connection was never made, so that nothing can have been carried out, and may be made soon. */
export function wasNeverSent(error: SandlotError): boolean {
  return error instanceof ConnectionError && (error.code === 'ECONNREFUSED' || error.code === 'EAI_AGAIN');
}

/** True where repeating cannot do harm: nothing was sent, or the call is idempotent and the failure passing. */
export function isRetryable(error: unknown, idempotent: boolean): boolean {
  if (!(error instanceof SandlotError)) return false;
  if (error instanceof ConnectionError && isDistrusted(error.code)) return false;
  if (error instanceof ConnectionError) return idempotent || wasNeverSent(error);
  if (error instanceof RateLimitError) return true;
  return idempotent && (error.status === 502 || error.status === 503 || error.status === 504);
}

/** Runs `attempt` until it succeeds, fails for good, or the retries are used up. */
export async function withRetries<T>(
  policy: RetryPolicy,
  idempotent: boolean,
  signal: AbortSignal | undefined,
  attempt: (number: number) => Promise<T>,
): Promise<T> {
  for (let number = 0; ; number++) {
    try {
      return await attempt(number);
    } catch (error) {
      if (number >= policy.maxRetries || !isRetryable(error, idempotent)) throw error;
      const wait = pauseMs(policy, number, (error as SandlotError).retryAfterSeconds);
      if (wait === undefined) throw error;
      await pause(wait, signal);
    }
  }
}

/** Length of the pause after attempt `number`: half fixed, half random, so that many clients spread out. */
export function pauseMs(policy: RetryPolicy, number: number, retryAfterSeconds?: number): number | undefined {
  if (retryAfterSeconds !== undefined) {
    const asked = retryAfterSeconds * 1000;
    return asked > retryAfterCapMs ? undefined : asked + Math.random() * 250;
  }
  const full = Math.min(policy.capMs, policy.baseMs * 2 ** number);
  return full / 2 + (Math.random() * full) / 2;
}

/** Waits, or fails with {@link AbortedError} as soon as the signal fires. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(new AbortedError('cancelled while waiting', { cause: signal?.reason }));
    };
    if (signal?.aborted) {
      reject(new AbortedError('cancelled while waiting', { cause: signal.reason }));
      return;
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', aborted);
      resolve();
    }, ms);
    signal?.addEventListener('abort', aborted, { once: true });
  });
}
