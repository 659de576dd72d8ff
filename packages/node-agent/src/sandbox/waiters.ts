/** Requests that wait until their sandbox runs. Used by `pauses.ts`. */

interface Waiter {
  resolve(): void;
  reject(error: Error): void;
}

/** Those of one sandbox. */
export class Waiters {
  readonly #all = new Set<Waiter>();

  /** Somebody waits. */
  get any(): boolean {
    return this.#all.size > 0;
  }

  /** Waits, at most so long. Rejects with `late()` after that, with the signal's reason when it aborts. */
  async wait(timeoutMs: number, late: () => Error, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    let waiter: Waiter | undefined;
    let timer: NodeJS.Timeout | undefined;
    let abort = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        waiter = { resolve, reject };
        this.#all.add(waiter);
        timer = setTimeout(() => reject(late()), timeoutMs);
        abort = () => reject(signal.reason as Error);
        signal.addEventListener('abort', abort, { once: true });
      });
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      if (waiter) this.#all.delete(waiter);
    }
  }

  /** It runs. */
  release(): void {
    for (const { resolve } of this.#all) resolve();
  }

  /** It does not, and why. */
  fail(error: Error): void {
    for (const { reject } of this.#all) reject(error);
  }
}
