/**
 * Lets the event loop turn between queries. SQLite answers at once, so a loop of awaited queries is
 * one long run of microtasks in which no socket is served; every transaction asks here first.
 */

/** Longest run of queries without a turn. */
const longestRunMs = 10;

/** Counts the time since the last turn. */
export class Breather {
  #turnedAt = performance.now();

  /** Resolves at once, or after a turn of the event loop when the last one is too long ago. */
  async breathe(): Promise<void> {
    if (performance.now() - this.#turnedAt < longestRunMs) return;
    await new Promise((resolve) => setImmediate(resolve));
    this.#turnedAt = performance.now();
  }
}
