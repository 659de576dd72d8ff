/**
 * Content by digest. A blob appears under its name only after every byte was checked, so whatever has the right
 * name and size is right. Blobs that a running operation needs are pinned and never collected.
 * Used by pull, imports, builds and the collector.
 */
import { createHash } from 'node:crypto';
import { type FileHandle, open, readFile, rm, stat } from 'node:fs/promises';
import { toImageError } from '../fault.js';
import { ImageError } from '../store.js';
import type { StoreFiles } from './files.js';
import { type Caller, type SharedRun, SingleFlight } from './single-flight.js';

/** Blobs of one store. */
export class BlobStore {
  private readonly flights = new SingleFlight<void>();
  private readonly pins = new Map<string, number>();

  constructor(private readonly files: StoreFiles) {}

  /** True if it is here with this size. */
  async has(digest: string, size: number): Promise<boolean> {
    const found = await stat(this.files.blob(digest)).catch(() => undefined);
    return found?.size === size;
  }

  /** A small blob's content; undefined if it is not here. */
  async readSmall(digest: string): Promise<Buffer | undefined> {
    try {
      return await readFile(this.files.blob(digest));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  }

  /** Keeps a blob from being collected until the answer is called. */
  pin(digest: string): () => void {
    this.pins.set(digest, (this.pins.get(digest) ?? 0) + 1);
    let isPinned = true;
    return () => {
      if (!isPinned) return;
      isPinned = false;
      const left = this.pins.get(digest)! - 1;
      if (left === 0) this.pins.delete(digest);
      else this.pins.set(digest, left);
    };
  }

  /** True while something needs it that no image record says yet. */
  isPinned(digest: string): boolean {
    return this.pins.has(digest);
  }

  /**
   * Sees to it that the blob is here: `fill` writes it into an empty file and answers the digest that it computed on
   * the way. Concurrent calls for one digest fill once. Throws `digest-mismatch` or `truncated`.
   */
  async ensure(
    digest: string,
    size: number,
    caller: Caller,
    fill: (file: FileHandle, run: SharedRun) => Promise<string>,
  ): Promise<void> {
    if (await this.has(digest, size)) return;
    await this.flights.run(digest, caller, async (run) => {
      if (await this.has(digest, size)) return;
      const temporary = this.files.temporary('blob');
      try {
        const file = await open(temporary, 'wx+', 0o444);
        try {
          const actual = await fill(file, run);
          const { size: written } = await file.stat();
          checkBlob(digest, size, actual, written);
          await file.datasync();
        } finally {
          await file.close();
        }
        await this.files.publish(temporary, this.files.blob(digest));
      } catch (error) {
        throw toImageError(error, `storing ${digest}`);
      } finally {
        await rm(temporary, { force: true });
      }
    });
  }

  /** Stores bytes under their digest, computed here unless the caller has checked it, and answers it. */
  async put(bytes: Buffer, checkedDigest?: string): Promise<string> {
    const digest = checkedDigest ?? `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    await this.ensure(digest, bytes.length, {}, async (file) => {
      await file.writeFile(bytes);
      return digest;
    });
    return digest;
  }

  /** Takes a finished file whose digest the caller has computed. */
  async adopt(path: string, digest: string): Promise<void> {
    const file = await open(path, 'r');
    try {
      await file.chmod(0o444);
      await file.datasync();
    } finally {
      await file.close();
    }
    await this.files.publish(path, this.files.blob(digest));
  }

  async remove(digest: string): Promise<void> {
    await rm(this.files.blob(digest), { force: true });
  }

  /** Ends running transfers. */
  async close(): Promise<void> {
    await this.flights.close();
  }
}

function checkBlob(digest: string, size: number, actual: string, written: number): void {
  if (actual === digest && written === size) return;
  if (written < size) {
    throw new ImageError(
      'truncated',
      `${digest} should have ${size} bytes, but only ${written} came; the source is incomplete, fetch or export it again`,
    );
  }
  throw new ImageError(
    'digest-mismatch',
    `the content that came for ${digest} has the digest ${actual} and ${written} bytes; the source is damaged or was tampered with`,
  );
}
