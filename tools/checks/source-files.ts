/**
 * What the checks of the house look at: the files that git tracks or would track, and the imports of
 * TypeScript files. Used by the `*.test.ts` files beside it.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** Root of the checkout. */
export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** Paths below the root, tracked or new and not ignored, that match the pattern. */
export function listFiles(pattern: RegExp): string[] {
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  const paths = listed.split('\0').filter((path) => path !== '' && pattern.test(path));
  return [...new Set(paths)].filter((path) => existsSync(join(root, path))).sort();
}

/** Text of a file below the root. */
export function readText(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

/** TypeScript of the packages that people wrote: no generated code. */
export function listPackageSources(): string[] {
  return listFiles(/^packages\/[^/]+\/src\/.*\.tsx?$/).filter((path) => !path.includes('/src/gen/'));
}

/** One import of one of our own files: a module of another package, or a file of the same one. */
export interface OwnImport {
  from: string;
  /** Package name without its scope, or undefined for a relative import. */
  package: string | undefined;
  /** Path below the root of the file imported; undefined for a package. */
  file: string | undefined;
}

/** Imports and re-exports of our own code in a file, dynamic imports and type imports included. */
export function listOwnImports(path: string): OwnImport[] {
  const found: OwnImport[] = [];
  for (const { fileName } of ts.preProcessFile(readText(path), true, true).importedFiles) {
    if (fileName.startsWith('@sandlot/')) {
      found.push({ from: path, package: fileName.split('/')[1], file: undefined });
    } else if (fileName.startsWith('.')) {
      found.push({ from: path, package: undefined, file: resolveRelative(path, fileName) });
    }
  }
  return found;
}

function resolveRelative(from: string, specifier: string): string {
  const target = normalize(join(dirname(from), specifier));
  const source = target.replace(/\.js$/, '.ts');
  return existsSync(join(root, source)) ? source : target;
}
