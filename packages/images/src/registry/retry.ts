/**
 * When a request to a registry is tried again, and after how long: capped, jittered backoff, and what the registry
 * itself asks for with Retry-After. Called by the client for requests and by the download for broken transfers.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ImageError } from '../store.js';

/** How patient the client is. Times in milliseconds. */
export interface RetryPolicy {
  /** Tries of one request, or of one transfer without any progress. */
  tries: number;
  baseMs: number;
  maxMs: number;
  /** The longest Retry-After that is waited for; beyond it the user is told. */
  maxRetryAfterMs: number;
  /** Until the headers of an answer, and between two chunks of its body. */
  silenceMs: number;
}

/** What is used where the caller sets nothing. */
export const DEFAULT_RETRY: RetryPolicy = {
  tries: 5,
  baseMs: 500,
  maxMs: 10_000,
  maxRetryAfterMs: 60_000,
  silenceMs: 30_000,
};

/** Milliseconds before try number `attempt` (from 1), jittered so that many clients spread out. */
export function backoffMs(policy: RetryPolicy, attempt: number, random: () => number = Math.random): number {
  const full = Math.min(policy.maxMs, policy.baseMs * 2 ** (attempt - 1));
  return Math.round(full / 2 + (random() * full) / 2);
}

/** Waits; throws `aborted` when the signal fires. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal });
  } catch (cause) {
    throw new ImageError('aborted', 'the pull was cancelled', { cause });
  }
}

/** Milliseconds that a Retry-After header asks for (seconds or a date); undefined if it says nothing. */
export function retryAfterMs(header: string | null, now: number): number | undefined {
  if (header === null) return undefined;
  if (/^[0-9]{1,9}$/.test(header.trim())) return Number(header) * 1000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** True for answers that another try may change. */
export function isTransientStatus(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || (status >= 500 && status !== 501);
}
