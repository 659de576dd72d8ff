/** Keeps prepared statements: preparing one costs more than most of our queries. Between Kysely and better-sqlite3. */
import type Database from 'better-sqlite3';
import type { SqliteDatabase } from 'kysely';

/** Distinct statements kept. Lists of ids make many; then all are dropped and the common ones come back. */
const maxStatements = 500;

/** A statement that does nothing. */
const nothing = 'select 1 where false';

/**
 * The database as Kysely's dialect wants it, with statements prepared once. A full disk makes SQLite roll a
 * transaction back by itself (https://www.sqlite.org/lang_transaction.html, section 3); Kysely's rollback after it would fail,
 * and hide why.
 */
export function cacheStatements(sqlite: Database.Database): SqliteDatabase {
  const statements = new Map<string, Database.Statement<unknown[]>>();
  return {
    prepare: (asked) => {
      const sql = asked === 'rollback' && !sqlite.inTransaction ? nothing : asked;
      let statement = statements.get(sql);
      if (statement === undefined) {
        if (statements.size >= maxStatements) statements.clear();
        statement = sqlite.prepare<unknown[]>(sql);
        statements.set(sql, statement);
      }
      return statement as unknown as ReturnType<SqliteDatabase['prepare']>;
    },
    close: () => {
      statements.clear();
      sqlite.close();
    },
  };
}
