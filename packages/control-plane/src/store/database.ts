/** Opens the database: one SQLite file in WAL mode, brought to the newest schema. Owned by `store.ts`. */
import { chmodSync } from 'node:fs';
import Database from 'better-sqlite3';
import { Kysely, Migrator, SqliteDialect, type Transaction } from 'kysely';
import { migrations } from './migrations.js';
import { cacheStatements } from './statement-cache.js';
import type { Tables } from './tables.js';

/** A connection or a transaction: what every query takes. */
export type Db = Kysely<Tables> | Transaction<Tables>;

/** How long a second process (a backup, a shell) may hold the file before a query fails. */
const busyTimeoutMs = 5_000;

/** Opens the file, makes it if missing, and applies what is missing of the schema. */
export async function openDatabase(file: string): Promise<Kysely<Tables>> {
  const sqlite = new Database(file, { timeout: busyTimeoutMs });
  chmodSync(file, 0o600);
  sqlite.pragma('journal_mode = WAL');
  // A crash of ours loses nothing with NORMAL; a crash of the host may lose the last moments, and with them went the machines too.
  sqlite.pragma('synchronous = NORMAL');
  sqlite.pragma('foreign_keys = ON');
  // Left to `checkpointer.ts`, so that no query of ours waits for the disk.
  sqlite.pragma('wal_autocheckpoint = 0');
  const db = new Kysely<Tables>({ dialect: new SqliteDialect({ database: cacheStatements(sqlite) }) });
  const migrator = new Migrator({ db, provider: { getMigrations: async () => migrations } });
  const { error } = await migrator.migrateToLatest();
  if (error !== undefined) {
    await db.destroy();
    throw new Error(
      `the database ${file} could not be brought to this version's schema; restore a backup or move it away`,
      {
        cause: error,
      },
    );
  }
  return db;
}
