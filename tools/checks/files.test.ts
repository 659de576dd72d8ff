/** Names and sizes of files, and what must not stand in any of them. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { listFiles, readText } from './source-files.js';

const code = /\.(ts|tsx|mts|mjs|rs|py)$/;

it('no file or folder is named for nothing in particular', () => {
  const forbidden = /(^|\/)(utils?|common|helpers?|shared|misc)(\/|\.[a-z]+$)/;
  expect(listFiles(forbidden)).toEqual([]);
});

it('TypeScript files and folders are named in kebab-case', () => {
  const named = listFiles(/^(packages|tests|tools)\/.*\.tsx?$/).filter((path) => !path.includes('/gen/'));
  expect(named.filter((path) => !/^[a-z0-9./-]+$/.test(path))).toEqual([]);
});

it('nine files in ten have at most 400 lines', () => {
  const sizes = listFiles(/\.(ts|tsx|rs)$/)
    .filter((path) => !path.includes('/gen/'))
    .map((path) => ({ path, lines: readText(path).split('\n').length - 1 }))
    .sort((a, b) => a.lines - b.lines);
  const at = (fraction: number) => sizes[Math.floor((sizes.length - 1) * fraction)]!.lines;
  const long = sizes.filter(({ lines }) => lines > 400).map(({ path, lines }) => `${path} (${lines})`);
  console.log(
    `${sizes.length} files, median ${at(0.5)} lines, 90th percentile ${at(0.9)}; over 400: ${long.join(', ') || 'none'}`,
  );
  expect(at(0.9)).toBeLessThanOrEqual(400);
});

it('every code file begins with what it is for; a test says it by its names', () => {
  const starts = /^(#!.*\n)?(\/\*\*|\/\/|#|""")/;
  const wrong = listFiles(code).filter(
    (path) => !/\/gen\/|\.test\.ts$/.test(path) && !starts.test(readText(path)),
  );
  expect(wrong).toEqual([]);
});

it('no package registry or mirror of this machine is named', () => {
  const hosts = listRegistryHosts();
  expect(hosts.length).toBeGreaterThan(0);
  const wrong = listFiles(/./)
    .filter((path) => !/\.(png|ico|woff2?)$/.test(path))
    .flatMap((path) => {
      const text = readText(path);
      return hosts.filter((host) => text.includes(host)).map((host) => `${path} names ${host}`);
    });
  expect(wrong).toEqual([]);
});

/** Hosts of apt sources, npm, pip and cargo as this machine is set up; never loopback. */
function listRegistryHosts(): string[] {
  const texts = [execFileSync('npm', ['config', 'get', 'registry'], { encoding: 'utf8' })];
  const folder = '/etc/apt/sources.list.d';
  const files = existsSync(folder) ? readdirSync(folder).map((name) => join(folder, name)) : [];
  for (const file of ['/etc/apt/sources.list', '/etc/pip.conf', ...files].filter((name) =>
    /\.(list|sources|conf)$/.test(name),
  )) {
    if (existsSync(file)) texts.push(readFileSync(file, 'utf8').replace(/^\s*#.*$/gm, ''));
  }
  const home = process.env['HOME'] ?? '/root';
  for (const file of ['.pip/pip.conf', '.config/pip/pip.conf', '.cargo/config.toml', '.npmrc']) {
    if (existsSync(join(home, file))) texts.push(readFileSync(join(home, file), 'utf8'));
  }
  const hosts = texts.flatMap((text) =>
    [...text.matchAll(/https?:\/\/([^/\s"':]+)/g)].map((match) => match[1]!),
  );
  return [...new Set(hosts)].filter((host) => host.includes('.') && !/^(127\.|localhost)/.test(host));
}
