/** Keeps prepared statements: preparing one costs more than most of our queries. Between Kysely and better-sqlite3. */
import type Database from 'better-sqlite3';
import type { SqliteDatabase } from 'kysely';

/** Distinct statements kept. Lists of ids make many; then all are dropped and the common ones come back. */
const maxStatements = 500;

/** The database as Kysely's dialect wants it, with statements prepared once. */
export function cacheStatements(sqlite: Database.Database): SqliteDatabase {
  const statements = new Map<string, Database.Statement<unknown[]>>();
  return {
    prepare: (sql) => {
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
