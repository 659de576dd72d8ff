/**
 * One at a time, in order of arrival. The store changes its records only inside it, so that a removal and a new
 * hold never cross. Nothing slow (network, builds) may run inside.
 */

/** See the file's head. */
export class Mutex {
  private tail: Promise<unknown> = Promise.resolve();

  /** Runs `action` when all earlier ones have ended, whatever their outcome. */
  run<T>(action: () => Promise<T>): Promise<T> {
    const result = this.tail.then(action);
    this.tail = result.catch(() => undefined);
    return result;
  }
}
