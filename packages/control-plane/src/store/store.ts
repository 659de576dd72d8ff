/**
 * The store: database, secrets, and the one way to change a record. Opened by `start.ts`, used by
 * `app/`. If the process dies here, SQLite rolls back what was not committed.
 */
import type { Kysely } from 'kysely';
import type { CheckpointRecord } from '../domain/checkpoint.js';
import type { SandboxRecord } from '../domain/record.js';
import { bookedWhilePaused } from '../domain/shape.js';
import { isEnded } from '../domain/states.js';
import { Breather } from './breather.js';
import { Checkpointer } from './checkpointer.js';
import { findCheckpoint, findCheckpointSecrets, updateCheckpoint } from './checkpoints.js';
import { type Db, openDatabase } from './database.js';
import { type BuildOutcome, finishBuild, noteBuild } from './image-builds.js';
import { deleteReservation, updateReservation } from './reservations.js';
import { findSandbox, findSecrets, updateSandbox } from './sandboxes.js';
import type { SecretBox } from './secret-box.js';
import type { Tables } from './tables.js';

/** What a change did. */
export interface Change {
  before: SandboxRecord;
  after: SandboxRecord;
}

/** The store. */
export class Store {
  readonly #listeners = new Set<(change: Change) => void>();

  readonly #breather = new Breather();

  private constructor(
    /** For reads, and for writes that need no transaction. */
    readonly db: Kysely<Tables>,
    private readonly checkpointer: Checkpointer,
    private readonly secrets: SecretBox,
    private readonly now: () => number,
  ) {}

  /** Opens the database file. `onError` hears of a checkpoint that failed. */
  static async open(
    file: string,
    secrets: SecretBox,
    now: () => number,
    onError: (error: Error) => void,
  ): Promise<Store> {
    const db = await openDatabase(file);
    return new Store(db, new Checkpointer(file, onError), secrets, now);
  }

  /** Calls back after each committed change of a record. */
  onChange(listener: (change: Change) => void): void {
    this.#listeners.add(listener);
  }

  /** Runs `work` in a transaction; all of it holds or nothing. */
  async transaction<T>(work: (db: Db) => Promise<T>): Promise<T> {
    await this.#breather.breathe();
    return this.db.transaction().execute(work);
  }

  /**
   * Changes one record: reads it, lets `decide` return what it becomes (undefined: nothing changes),
   * writes it, frees its room when it has ended, and most of it when it is paused. One transaction, so two changes never mix; none at
   * all when a first look shows nothing to change. `decide` may run twice.
   */
  async change(
    id: string,
    decide: (record: SandboxRecord) => SandboxRecord | undefined,
  ): Promise<Change | undefined> {
    await this.#breather.breathe();
    const seen = await findSandbox(this.db, id);
    if (seen === undefined || decide(seen) === undefined) return undefined;
    const change = await this.transaction(async (db) => {
      const before = await findSandbox(db, id);
      const after = before && decide(before);
      if (before === undefined || after === undefined) return undefined;
      await this.write(db, before, after);
      return { before, after };
    });
    if (change !== undefined) this.announce(change);
    return change;
  }

  /** Writes a changed record and what hangs on it; for callers with a transaction of their own, who then {@link announce}. */
  async write(db: Db, before: SandboxRecord, after: SandboxRecord): Promise<void> {
    const now = this.now();
    await updateSandbox(db, after, now);
    if (isEnded(after.state) && !isEnded(before.state)) await deleteReservation(db, after.id);
    if (after.state === 'paused' && before.state !== 'paused')
      await updateReservation(db, after.id, bookedWhilePaused(after.shape));
    if (before.imageBuildId === after.imageBuildId) return;
    if (after.imageBuildId !== null) await noteBuild(db, after.imageBuildId, after.request.image, now);
    if (before.imageBuildId !== null) await finishBuild(db, before.imageBuildId, buildOutcome(after), now);
  }

  /** Tells the listeners about a committed change. */
  announce(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }

  /** Secrets as they are stored. */
  sealSecrets(id: string, secrets: Record<string, string>): string | null {
    return Object.keys(secrets).length === 0 ? null : this.secrets.seal(JSON.stringify(secrets), id);
  }

  /** Secrets of a sandbox in clear: only for the spec that goes to its node. */
  async readSecrets(id: string): Promise<Record<string, string>> {
    const sealed = await findSecrets(this.db, id);
    return sealed === null ? {} : (JSON.parse(this.secrets.open(sealed, id)) as Record<string, string>);
  }

  /** Changes the record of a checkpoint as {@link change} does a sandbox's; resolves with what it is then, if it changed. */
  async changeCheckpoint(
    id: string,
    decide: (record: CheckpointRecord) => CheckpointRecord | undefined,
  ): Promise<CheckpointRecord | undefined> {
    return this.transaction(async (db) => {
      const before = await findCheckpoint(db, id);
      const after = before && decide(before);
      if (after !== undefined) await updateCheckpoint(db, after);
      return after;
    });
  }

  /** Secrets that a checkpoint has of its sandbox, in clear: only for a sandbox that begins with it. */
  async readCheckpointSecrets(id: string): Promise<Record<string, string>> {
    const sealed = await findCheckpointSecrets(this.db, id);
    return sealed === null ? {} : (JSON.parse(this.secrets.open(sealed, id)) as Record<string, string>);
  }

  /** Closes the database. */
  async close(): Promise<void> {
    this.#listeners.clear();
    await this.checkpointer.close();
    await this.db.destroy();
  }
}

function buildOutcome(record: SandboxRecord): BuildOutcome {
  if (record.reason === 'IMAGE_PULL_FAILED' || record.reason === 'IMAGE_INVALID')
    return { status: 'FAILED', error: record.message ?? 'The image could not be used.' };
  // A sandbox that went away says nothing about a build that others may still wait for.
  if (record.reason !== null) return { status: 'CANCELLED', error: null };
  return { status: 'COMPLETED', error: null };
}
