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

  /** The record once `enough` says so, or as it is after `ms`; undefined when there is none. */
  async wait(
    id: string,
    ms: number,
    enough: (record: SandboxRecord) => boolean,
  ): Promise<SandboxRecord | undefined> {
    let satisfied: (record: SandboxRecord) => void = () => undefined;
    const found = new Promise<SandboxRecord>((resolve) => {
      satisfied = resolve;
    });
    // Listen first, then look: a change between the two is not missed.
    const stop = this.#listen(id, (record) => enough(record) && satisfied(record));
    let timer: NodeJS.Timeout | undefined;
    try {
      const now = await findSandbox(this.store.db, id);
      if (now === undefined || ms <= 0 || enough(now)) return now;
      const late = new Promise<undefined>((resolve) => {
        timer = setTimeout(() => resolve(undefined), ms);
      });
      return (await Promise.race([found, late])) ?? (await findSandbox(this.store.db, id));
    } finally {
      clearTimeout(timer);
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
