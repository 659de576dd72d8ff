/**
 * One run for many callers who ask for the same thing at once. Each caller may give up alone; the run is aborted
 * only when all have. Used by the store for pulls, builds and blobs.
 */
import { ImageError, type StoreProgress } from '../store.js';

/** How a caller takes part. */
export interface Caller {
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: StoreProgress) => void) | undefined;
}

/** What the shared run gets. */
export interface SharedRun {
  signal: AbortSignal;
  onProgress(progress: StoreProgress): void;
}

interface Flight<T> {
  result: Promise<T>;
  callers: Set<Caller>;
  abort: AbortController;
  last: StoreProgress | undefined;
}

/** Runs by key. */
export class SingleFlight<T> {
  private readonly flights = new Map<string, Flight<T>>();

  /** Joins the run of `key`, or starts it. */
  async run(key: string, caller: Caller, start: (run: SharedRun) => Promise<T>): Promise<T> {
    if (caller.signal?.aborted) throw cancelled(caller.signal);
    const existing = this.flights.get(key);
    const flight = existing && !existing.abort.signal.aborted ? existing : this.launch(key, start);
    // A caller object of its own, so that one caller may join twice.
    const member: Caller = { signal: caller.signal, onProgress: caller.onProgress };
    flight.callers.add(member);
    if (flight.last) caller.onProgress?.(flight.last);
    try {
      return await this.waitFor(flight, member);
    } finally {
      flight.callers.delete(member);
    }
  }

  /** Aborts everything and waits for the ends. */
  async close(): Promise<void> {
    const flights = [...this.flights.values()];
    for (const flight of flights) flight.abort.abort();
    await Promise.allSettled(flights.map((flight) => flight.result));
  }

  private launch(key: string, start: (run: SharedRun) => Promise<T>): Flight<T> {
    const abort = new AbortController();
    const flight: Flight<T> = {
      abort,
      callers: new Set(),
      last: undefined,
      result: undefined as unknown as Promise<T>,
    };
    const onProgress = (progress: StoreProgress) => {
      flight.last = progress;
      for (const { onProgress: tell } of flight.callers) tell?.(progress);
    };
    flight.result = (async () => start({ signal: abort.signal, onProgress }))().finally(() => {
      if (this.flights.get(key) === flight) this.flights.delete(key);
    });
    // Every caller may have gone before it fails.
    flight.result.catch(() => undefined);
    this.flights.set(key, flight);
    return flight;
  }

  private waitFor(flight: Flight<T>, member: Caller): Promise<T> {
    const { signal } = member;
    if (!signal) return flight.result;
    return new Promise<T>((resolve, reject) => {
      const giveUp = () => {
        flight.callers.delete(member);
        if (flight.callers.size === 0) flight.abort.abort(signal.reason);
        reject(cancelled(signal));
      };
      signal.addEventListener('abort', giveUp, { once: true });
      flight.result.then(resolve, reject).finally(() => signal.removeEventListener('abort', giveUp));
    });
  }
}

/** What a caller gets who has given up. */
export function cancelled(signal: AbortSignal): ImageError {
  return new ImageError('aborted', 'the request for the image was cancelled', { cause: signal.reason });
}
