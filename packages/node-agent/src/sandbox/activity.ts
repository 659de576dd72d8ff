/**
 * When a sandbox was last used: an exec, upload, download, file read or live process. Status reads
 * do not count. Used by the gateway (marks) and by `timeouts.ts` (asks).
 */
export class Activity {
  #open = 0;
  #lastUnixMs: number;

  constructor(lastUnixMs = Date.now()) {
    this.#lastUnixMs = lastUnixMs;
  }

  /** A use begins. @returns ends it; safe to call twice */
  begin(): () => void {
    this.#open += 1;
    this.#lastUnixMs = Date.now();
    let done = false;
    return () => {
      if (done) return;
      done = true;
      this.#open -= 1;
      this.#lastUnixMs = Date.now();
    };
  }

  /** Now, while anything is open. */
  get lastUnixMs(): number {
    return this.#open > 0 ? Date.now() : this.#lastUnixMs;
  }

  /** Something was seen to run without us (a detached session). */
  touch(): void {
    this.#lastUnixMs = Date.now();
  }
}
