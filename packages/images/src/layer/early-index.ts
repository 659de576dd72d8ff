/**
 * Entries of plain layers, listed while the layer arrives, so that the build that mostly follows at once need not
 * read it again. Only a shortcut: what is missing here is read from the blob. Filled by pulls, used by builds.
 */
import type { ImageLimits } from '../limits.js';
import { ImageError } from '../store.js';
import type { TarEntry } from '../tar/tar-entry.js';
import { TarReader } from '../tar/tar-reader.js';

/** Entries kept over all layers (about 300 bytes each); beyond, the oldest layer is forgotten. */
const MAX_ENTRIES = 100_000;

/** Lists by layer digest. */
export class EarlyIndexes {
  private readonly lists = new Map<string, TarEntry[]>();
  private total = 0;

  /** Keeps a complete list. */
  keep(digest: string, entries: TarEntry[]): void {
    this.forget(digest);
    if (entries.length > MAX_ENTRIES) return;
    this.lists.set(digest, entries);
    this.total += entries.length;
    for (const oldest of this.lists.keys()) {
      if (this.total <= MAX_ENTRIES) break;
      this.forget(oldest);
    }
  }

  /** The list of a layer, if it is still here. */
  find(digest: string): TarEntry[] | undefined {
    return this.lists.get(digest);
  }

  /** Drops a list; called when the build that wanted it has ended. */
  forget(digest: string): void {
    this.total -= this.lists.get(digest)?.length ?? 0;
    this.lists.delete(digest);
  }
}

/** Lists one layer from its bytes as they come; gives up silently on whatever is not a plain tar. */
export class EarlyIndex {
  private entries: TarEntry[] = [];
  private reader: TarReader | undefined;

  constructor(private readonly limits: ImageLimits) {
    this.restart();
  }

  /** Takes the next bytes. */
  write(chunk: Buffer): void {
    this.attempt((reader) => reader.write(chunk));
  }

  /** The transfer begins anew. */
  restart(): void {
    this.entries = [];
    this.reader = new TarReader(this.limits, (entry) => {
      this.entries.push(entry);
      if (this.entries.length > MAX_ENTRIES) this.reader = undefined;
    });
  }

  /** The list, or undefined if there is none worth keeping. */
  finish(): TarEntry[] | undefined {
    this.attempt((reader) => reader.finish());
    return this.reader ? this.entries : undefined;
  }

  private attempt(action: (reader: TarReader) => void): void {
    if (!this.reader) return;
    try {
      action(this.reader);
    } catch (error) {
      if (!(error instanceof ImageError)) throw error;
      // Compressed, or damaged: the build finds out and says so.
      this.reader = undefined;
      this.entries = [];
    }
  }
}
