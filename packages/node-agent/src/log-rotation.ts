/**
 * Keeps the logs of this machine's daemons small. They write to a descriptor that `sandlot up` has opened
 * for appending, and crashes of Node itself end up there too: so a full log is copied aside and cut
 * to nothing, and nobody has to open it again. Only the node agent may write in their folder, so it
 * does this for the control plane's log as well. Made by `main.ts`.
 *
 * If we die in between, the log is still whole; at worst its copy holds the same lines. Of another
 * process's log the lines of the microseconds between the last copy and the cut are lost.
 */
import {
  closeSync,
  existsSync,
  openSync,
  readSync,
  renameSync,
  statSync,
  truncateSync,
  writeSync,
} from 'node:fs';
import { copyFile, readdir, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';

/** Sizes and times. */
export interface LogRotationOptions {
  maxBytes?: number;
  /** Old logs kept of each. */
  kept?: number;
  intervalMs?: number;
}

const tailChunkBytes = 64 * 1024;

/** Looks after every `*.log` of a folder until it is closed. */
export class LogRotation {
  readonly #maxBytes: number;
  readonly #kept: number;
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | undefined;

  constructor(
    private readonly folder: string,
    private readonly onError: (error: unknown) => void,
    { maxBytes = 64 * 1024 * 1024, kept = 3, intervalMs = 10_000 }: LogRotationOptions = {},
  ) {
    this.#maxBytes = maxBytes;
    this.#kept = kept;
    this.#timer = setInterval(() => void this.check(), intervalMs).unref();
  }

  /** Sets aside what is too large, now. Never rejects. */
  check(): Promise<void> {
    this.#running ??= this.#check()
      .catch(this.onError)
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }

  /** Stops looking; resolves when nothing is on its way. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#running;
  }

  async #check(): Promise<void> {
    for (const name of await readdir(this.folder)) {
      if (!name.endsWith('.log')) continue;
      const file = join(this.folder, name);
      if ((await stat(file)).size > this.#maxBytes) await this.#rotate(file);
    }
  }

  async #rotate(file: string): Promise<void> {
    const copy = `${file}.new`;
    try {
      // The long part, while the log goes on growing.
      await copyFile(file, copy);
      // From here in one go, so that nothing of our own comes in between. Old logs move only when the copy is whole.
      appendTail(file, copy);
    } catch (error) {
      await rm(copy, { force: true });
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      await this.#makeRoom(file);
      return;
    }
    for (let number = this.#kept - 1; number >= 1; number--) {
      if (existsSync(`${file}.${number}`)) renameSync(`${file}.${number}`, `${file}.${number + 1}`);
    }
    renameSync(copy, `${file}.1`);
    truncateSync(file);
  }

  /** On a full disk an old log goes, the oldest first, and at last the full one itself: the next check goes on. */
  async #makeRoom(file: string): Promise<void> {
    const names = new Set(await readdir(this.folder));
    for (let number = this.#kept; number >= 1; number--) {
      if (!names.has(basename(`${file}.${number}`))) continue;
      await rm(`${file}.${number}`);
      return;
    }
    truncateSync(file);
  }
}

/** Adds to the copy what the log has got since. */
function appendTail(file: string, copy: string): void {
  const from = openSync(file, 'r');
  try {
    const to = openSync(copy, 'a');
    try {
      const chunk = Buffer.alloc(tailChunkBytes);
      for (let position = statSync(copy).size; ; ) {
        const count = readSync(from, chunk, 0, chunk.length, position);
        if (count === 0) return;
        for (let written = 0; written < count; ) written += writeSync(to, chunk, written, count - written);
        position += count;
      }
    } finally {
      closeSync(to);
    }
  } finally {
    closeSync(from);
  }
}
