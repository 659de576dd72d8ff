/** Random numbers that are the same in every run: the seed stands in the test. Used by the tests of faults and transfers. */

/** A generator (mulberry32). */
export class SeededRandom {
  #state: number;

  constructor(readonly seed: number) {
    this.#state = seed >>> 0;
  }

  /** In [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  /** Bytes. */
  bytes(size: number): Buffer {
    const bytes = Buffer.alloc(Math.ceil(size / 4) * 4);
    for (let at = 0; at < size; at += 4) bytes.writeUInt32LE(Math.floor(this.next() * 2 ** 32), at);
    return bytes.subarray(0, size);
  }
}

/** The seed of a long test: SANDLOT_TEST_SEED, or a new one; printed, so that a failure can be repeated. */
export function seedOfRun(test: string): number {
  const seed = Number(process.env['SANDLOT_TEST_SEED'] ?? Date.now() % 1_000_000);
  process.stderr.write(`${test}: SANDLOT_TEST_SEED=${seed}\n`);
  return seed;
}
