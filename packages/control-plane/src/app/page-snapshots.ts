/**
 * Keeps pages stable while sandboxes come and go: the first page of a list fixes which sandboxes the
 * following pages show, for two minutes. Without it, a delete between two pages would hide others.
 */

interface Snapshot {
  ids: readonly string[];
  expiresAt: number;
}

const lifetimeMs = 120_000;
const maxSnapshots = 256;

/** Snapshots by who asks what. */
export class PageSnapshots {
  readonly #snapshots = new Map<string, Snapshot>();

  constructor(private readonly now: () => number) {}

  /** Fixes the ids of a list. A list that has one page only need not be kept. */
  keep(key: string, ids: readonly string[]): void {
    this.#snapshots.delete(key);
    this.#snapshots.set(key, { ids, expiresAt: this.now() + lifetimeMs });
    for (const [oldest, snapshot] of this.#snapshots) {
      if (this.#snapshots.size <= maxSnapshots && snapshot.expiresAt > this.now()) break;
      this.#snapshots.delete(oldest);
    }
  }

  /** Ids fixed by the first page, if that is not too long ago. */
  find(key: string): readonly string[] | undefined {
    const snapshot = this.#snapshots.get(key);
    return snapshot !== undefined && snapshot.expiresAt > this.now() ? snapshot.ids : undefined;
  }
}
