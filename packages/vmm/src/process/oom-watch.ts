/**
 * Tells whether the host's kernel has lately killed something for want of memory, to explain a
 * machine that ended by SIGKILL. The counter is the host's, so it is an inference, made only for a
 * process that nobody of ours killed. One per driver.
 */
import { readFileSync } from 'node:fs';

const sampleEveryMs = 1000;

/** Parses the `oom_kill` line of /proc/vmstat; 0 if there is none. */
export function parseOomKills(vmstat: string): number {
  return Number(/^oom_kill (\d+)$/m.exec(vmstat)?.[1] ?? 0);
}

/** Samples the counter while machines run. */
export class OomWatch {
  #timer: NodeJS.Timeout | undefined;
  #older = 0;
  #newer = 0;
  #machines = 0;
  readonly #read: () => number;

  /** @param read Gives the counter; for tests. */
  constructor(read: () => number = readHostOomKills) {
    this.#read = read;
  }

  /** A machine runs from now on. */
  enter(): void {
    if (this.#machines++ > 0) return;
    this.#older = this.#newer = this.#read();
    this.#timer = setInterval(() => {
      this.#older = this.#newer;
      this.#newer = this.#read();
    }, sampleEveryMs);
    this.#timer.unref();
  }

  /** A machine runs no more. */
  leave(): void {
    if (--this.#machines > 0) return;
    this.close();
  }

  /** True if the kernel has killed for memory in the last one to two seconds. */
  hasKilledLately(): boolean {
    return this.#timer !== undefined && this.#read() > this.#older;
  }

  /** Stops sampling. */
  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

function readHostOomKills(): number {
  try {
    return parseOomKills(readFileSync('/proc/vmstat', 'latin1'));
  } catch {
    return 0;
  }
}
