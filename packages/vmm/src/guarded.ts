/**
 * Runs the steps of a start against everything that can cut it short: the caller's abort, a
 * deadline, the end of the process. Used by both drivers for template builds and restores.
 */
import { VmmError } from './driver.js';

/** What watches a piece of work. */
export interface Guard {
  /** Aborted by the caller's signal, the deadline, or {@link Guard.fail}. */
  readonly signal: AbortSignal;
  /** The result of `work`, unless the guard fails first. */
  race<T>(work: Promise<T>): Promise<T>;
  /** Makes every {@link Guard.race}, now and later, reject with this. The first one counts. */
  fail(error: VmmError): void;
  /** Stops watching. */
  dispose(): void;
}

/** A guard that fails when `signal` aborts (`aborted`) or `timeoutMs` passes (`timeout`). `what` completes "… took longer than". */
export function startGuard(signal: AbortSignal, timeoutMs: number, what: string): Guard {
  const controller = new AbortController();
  let reject: (error: VmmError) => void = () => {};
  const failed = new Promise<never>((_, no) => {
    reject = no;
  });
  failed.catch(() => {
    // Whoever races sees it; nobody racing at the moment is not an unhandled rejection.
  });
  const fail = (error: VmmError): void => {
    reject(error);
    controller.abort(error);
  };
  const onAbort = (): void =>
    fail(new VmmError('aborted', `${what} was cancelled`, { cause: signal.reason as unknown }));
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  const timer = setTimeout(
    () => fail(new VmmError('timeout', `${what} took longer than ${timeoutMs} ms`)),
    timeoutMs,
  );
  return {
    signal: controller.signal,
    race: (work) => Promise.race([failed, work]),
    fail,
    dispose() {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    },
  };
}
