/** Tells a sandbox that reboots now and then from one that does nothing else. Used by `sandbox.ts`. */

/** So many in so long are the most. */
const most = 10;
const windowMs = 5 * 60_000;

/** Counts the reboots of one sandbox. */
export class RebootLimit {
  #times: number[] = [];

  /** Counts one more; false when it is one too many. */
  admit(nowMs: number): boolean {
    this.#times = this.#times.filter((time) => nowMs - time < windowMs);
    this.#times.push(nowMs);
    return this.#times.length <= most;
  }
}
