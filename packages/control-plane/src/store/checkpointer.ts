/**
 * Moves what is in the write-ahead log into the database file, in a thread of its own: its fsyncs
 * can take seconds while images are built on the same disk, and must not hold up the API.
 * https://www.sqlite.org/wal.html, "Checkpointing"
 */
import { Worker } from 'node:worker_threads';

/** The thread, until `close`. */
export class Checkpointer {
  readonly #worker: Worker;

  constructor(file: string, onError: (error: Error) => void) {
    this.#worker = new Worker(program, { eval: true, workerData: { file, base: import.meta.url } });
    this.#worker.unref();
    this.#worker.on('error', onError);
    this.#worker.on('message', (why: string) => onError(new Error(why)));
  }

  /** Ends the thread; closing the last connection makes the last checkpoint. */
  async close(): Promise<void> {
    await this.#worker.terminate();
  }
}

/** Text of the thread: so small that it needs no file of its own, which source and build would place differently. */
const program = `
const { parentPort, workerData } = require('node:worker_threads');
const { createRequire } = require('node:module');
const { statSync } = require('node:fs');
const Database = createRequire(workerData.base)('better-sqlite3');
const everyMs = 1000, leastBytes = 8 * 1024 * 1024;
const db = new Database(workerData.file, { timeout: 5000 });
// Opens all its files now: what a process has open should not depend on when it first had work.
db.pragma('user_version');
let failed = false;
setInterval(() => {
  let size = 0;
  try { size = statSync(workerData.file + '-wal').size; } catch { return; }
  if (size < leastBytes) return;
  try {
    db.pragma('wal_checkpoint(PASSIVE)');
    failed = false;
  } catch (error) {
    if (!failed) parentPort.postMessage(String(error));
    failed = true;
  }
}, everyMs);
`;
