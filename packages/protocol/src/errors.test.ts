import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { endings } from './endings.js';
import { type ErrorCode, errorTable, isErrorCode } from './errors.js';
import { notYetRoutes } from './not-yet.js';
import { type Route, routeList } from './routes.js';
import { compileSchema, type TSchema } from './schema.js';

const packages = fileURLToPath(new URL('../../', import.meta.url));

describe('the error table', () => {
  it('has a status that fits who must act, and texts that are sentences', () => {
    for (const [code, row] of Object.entries(errorTable)) {
      expect(code).toMatch(/^[A-Z][A-Z_]+$/);
      expect([code, row.status >= 500]).toEqual([code, row.actor !== 'caller' && row.status !== 403]);
      expect(row.meaning).toMatch(/\.$/);
      expect(row.remedy).toMatch(/\.$/);
      expect(row.exitCode).toBeGreaterThanOrEqual(64);
      expect(row.exitCode).toBeLessThanOrEqual(78);
    }
    expect(isErrorCode('INTERNAL')).toBe(true);
    expect(isErrorCode('toString')).toBe(false);
  });

  it('every code of the table is raised by the control plane, and no other', () => {
    const text = sources(join(packages, 'control-plane/src'))
      .map((file) => readFileSync(file, 'utf8'))
      .join('\n');
    const quoted = new Set([...text.matchAll(/'([A-Z][A-Z_]{4,})'/g)].map((match) => match[1] as string));
    for (const code of Object.keys(errorTable)) expect([code, quoted.has(code)]).toEqual([code, true]);
    for (const [, code] of text.matchAll(/new AppError\(\s*'([A-Z_]+)'/g))
      expect(isErrorCode(code)).toBe(true);
  });

  it('every ending has a text, and an error type exactly when something went wrong', () => {
    for (const [reason, row] of Object.entries(endings)) {
      expect(row.message).toMatch(/\.$/);
      expect([reason, row.errorType === null]).toEqual([reason, row.status === 'TERMINATED']);
    }
  });
});

describe('the routes', () => {
  it('have distinct paths, documented errors, and an object as answer', () => {
    const seen = new Set<string>();
    for (const [id, route] of routeList) {
      const key = `${route.method} ${route.path}`;
      expect([id, seen.has(key)]).toEqual([id, false]);
      seen.add(key);
      expect([id, route.answer['type']]).toEqual([id, 'object']);
      for (const code of route.errors as readonly ErrorCode[]) expect(isErrorCode(code)).toBe(true);
    }
    for (const { method, path } of notYetRoutes) expect(seen.has(`${method} ${path}`)).toBe(false);
  });

  it('every schema compiles', () => {
    for (const [, route] of routeList as readonly [string, Route][])
      for (const schema of [route.query, route.body, route.answer].filter(
        (one): one is TSchema => one !== undefined,
      ))
        expect(() => compileSchema(schema)({})).not.toThrow();
  });
});

function sources(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) return sources(path);
    return name.endsWith('.ts') && !name.endsWith('.test.ts') ? [path] : [];
  });
}
