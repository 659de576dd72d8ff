/**
 * A bounded number of places; who comes later waits in line or until the signal fires. Used for builds.
 */
import { ImageError } from '../store.js';

/** See the file's head. */
export class Slots {
  private taken = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(private readonly count: number) {}

  /** Waits for a place and answers how to leave it. Throws `aborted`. */
  async enter(signal: AbortSignal): Promise<() => void> {
    if (this.taken >= this.count) await this.wait(signal);
    else this.taken++;
    let isInside = true;
    return () => {
      if (!isInside) return;
      isInside = false;
      const next = this.waiting.shift();
      // The place passes on directly, so that nobody overtakes the line.
      if (next) next();
      else this.taken--;
    };
  }

  private wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(cancelled());
        return;
      }
      const take = () => {
        signal.removeEventListener('abort', giveUp);
        resolve();
      };
      const giveUp = () => {
        this.waiting.splice(this.waiting.indexOf(take), 1);
        reject(cancelled());
      };
      signal.addEventListener('abort', giveUp, { once: true });
      this.waiting.push(take);
    });
  }
}

function cancelled(): ImageError {
  return new ImageError('aborted', 'the build was cancelled while it waited for its turn');
}
