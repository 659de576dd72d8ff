/**
 * Lets the event loop turn between queries. SQLite answers at once, so a loop of awaited queries is
 * one long run of microtasks in which no socket is served; every transaction asks here first.
 */

/** Longest run of queries without a turn. */
const longestRunMs = 10;

/** Counts the time since the last turn, and lets those who wait go on one a turn. */
export class Breather {
  #turnedAt = performance.now();
  readonly #waiting: (() => void)[] = [];

  /** Resolves at once, or after a turn of the event loop when the last one is too long ago. */
  breathe(): Promise<void> | undefined {
    if (this.#waiting.length === 0 && performance.now() - this.#turnedAt < longestRunMs) return undefined;
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#waiting.length === 1) setImmediate(() => this.#turn());
    });
  }

  #turn(): void {
    this.#turnedAt = performance.now();
    this.#waiting.shift()?.();
    // The next one in the next turn: all at once would be one long run again.
    if (this.#waiting.length > 0) setImmediate(() => this.#turn());
  }
}
