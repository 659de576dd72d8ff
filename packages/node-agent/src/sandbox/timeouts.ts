/** Ends a sandbox at its deadline or after its idle time. The node does it, so that it happens without the control plane too. */
import type { Activity } from './activity.js';

/** Timers may sleep at most this long: setTimeout counts in 32 bits, and the clock may be set. */
const longestSleepMs = 60_000;

/** What a sandbox is limited to. */
export interface Limits {
  deadlineUnixMs?: number | undefined;
  idleTimeoutMs?: number | undefined;
}

/** Watches one running sandbox. */
export class Timeouts {
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  /**
   * @param isBusy asks the guest whether a live process runs that we do not carry ourselves
   * @param onExpired called once
   */
  constructor(
    private readonly limits: Limits,
    private readonly activity: Activity,
    private readonly isBusy: () => Promise<boolean>,
    private readonly onExpired: (reason: 'TIMEOUT' | 'IDLE_TIMEOUT') => void,
  ) {
    this.#schedule();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (this.#closed) return;
    const due = Math.min(this.limits.deadlineUnixMs ?? Infinity, this.#idleDueUnixMs());
    if (due === Infinity) return;
    const sleepMs = Math.min(Math.max(due - Date.now(), 0), longestSleepMs);
    this.#timer = setTimeout(() => void this.#check(), sleepMs);
  }

  #idleDueUnixMs(): number {
    return this.limits.idleTimeoutMs === undefined
      ? Infinity
      : this.activity.lastUnixMs + this.limits.idleTimeoutMs;
  }

  async #check(): Promise<void> {
    if (this.#closed) return;
    if (Date.now() >= (this.limits.deadlineUnixMs ?? Infinity)) {
      this.close();
      this.onExpired('TIMEOUT');
      return;
    }
    if (Date.now() >= this.#idleDueUnixMs()) {
      // A guest that cannot say is not taken for busy: its machine would never end.
      if (await this.isBusy().catch(() => false)) this.activity.touch();
      else if (!this.#closed && Date.now() >= this.#idleDueUnixMs()) {
        this.close();
        this.onExpired('IDLE_TIMEOUT');
        return;
      }
    }
    this.#schedule();
  }
}
