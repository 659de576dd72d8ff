/** Lets requests wait for a record to change: behind `?wait=` and the short hold of a create. */
import type { SandboxRecord } from '../domain/record.js';
import { findSandbox } from '../store/sandboxes.js';
import type { Store } from '../store/store.js';

type Listener = (record: SandboxRecord) => void;

/** Who waits for which record. */
export class ChangeHub {
  readonly #listeners = new Map<string, Set<Listener>>();

  constructor(private readonly store: Store) {
    store.onChange(({ after }) => {
      for (const listener of [...(this.#listeners.get(after.id) ?? [])]) listener(after);
    });
  }

  /** The record once `enough` says so, or as it is after `ms` or an abort; undefined when there is none. */
  async wait(
    id: string,
    ms: number,
    enough: (record: SandboxRecord) => boolean,
    signal: AbortSignal,
  ): Promise<SandboxRecord | undefined> {
    let satisfied: (record: SandboxRecord) => void = () => undefined;
    const found = new Promise<SandboxRecord>((resolve) => {
      satisfied = resolve;
    });
    // Listen first, then look: a change between the two is not missed.
    const stop = this.#listen(id, (record) => enough(record) && satisfied(record));
    let timer: NodeJS.Timeout | undefined;
    let giveUp: () => void = () => undefined;
    try {
      const now = await findSandbox(this.store.db, id);
      if (now === undefined || ms <= 0 || enough(now)) return now;
      const late = new Promise<undefined>((resolve) => {
        giveUp = () => resolve(undefined);
        timer = setTimeout(giveUp, ms);
        signal.addEventListener('abort', giveUp, { once: true });
      });
      const changed = await Promise.race([found, late]);
      // Nobody is there to hear it, and at a stop there is no database any more.
      if (signal.aborted) return now;
      return changed ?? (await findSandbox(this.store.db, id));
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', giveUp);
      stop();
    }
  }

  #listen(id: string, listener: Listener): () => void {
    const set = this.#listeners.get(id) ?? new Set();
    this.#listeners.set(id, set.add(listener));
    return () => {
      set.delete(listener);
      if (set.size === 0 && this.#listeners.get(id) === set) this.#listeners.delete(id);
    };
  }
}
