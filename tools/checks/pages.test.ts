/** The pages say what is there: links lead somewhere, paths exist, versions agree. */
import { existsSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { listFiles, readText, root } from './source-files.js';

const pages = listFiles(/\.md$/);

/** Text without code blocks, where nothing is a link. */
const withoutCode = (text: string): string =>
  text.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, '``');

/** Anchors of a page, as web hosts of git make them from headings. */
function listAnchors(text: string): Set<string> {
  const headings = [...text.replace(/^```[\s\S]*?^```/gm, '').matchAll(/^#{1,6} +(.+)$/gm)];
  return new Set(
    headings.map((match) =>
      match[1]!
        .toLowerCase()
        .replace(/[^\p{L}\p{N} _-]/gu, '')
        .trim()
        .replaceAll(' ', '-'),
    ),
  );
}

function findBrokenLinks(page: string): string[] {
  const broken: string[] = [];
  for (const match of withoutCode(readText(page)).matchAll(/\]\(([^)\s]+)\)/g)) {
    const link = match[1]!;
    if (/^[a-z]+:/.test(link)) continue;
    const [path = '', anchor] = link.split('#');
    const target = path === '' ? page : normalize(join(dirname(page), path));
    if (!existsSync(join(root, target))) broken.push(`${page}: ${link} is not there`);
    else if (anchor && target.endsWith('.md') && !listAnchors(readText(target)).has(anchor))
      broken.push(`${page}: ${link} has no such heading`);
  }
  return broken;
}

/** Paths below the root that a page names in backticks; not patterns, built or cached files. */
function listNamedPaths(text: string): string[] {
  const found = [...text.matchAll(/`((?:packages|guest-agent|tools|tests|docs|bin|\.ci)\/[^`\s:]*)`/g)];
  return found.map((match) => match[1]!).filter((path) => !/[*{<…]|\/dist\/|\/target\//.test(path));
}

describe('pages', () => {
  it('have no broken link', () => {
    expect(pages.flatMap(findBrokenLinks)).toEqual([]);
  });

  it('name only files that exist', () => {
    const wrong = pages
      .filter((page) => page !== 'CHANGELOG.md')
      .flatMap((page) =>
        listNamedPaths(readText(page))
          .filter((path) => !existsSync(join(root, path)))
          .map((path) => `${page} names ${path}`),
      );
    expect(wrong).toEqual([]);
  });

  it('docs/architecture.md names the main path file by file', () => {
    const section = readText('docs/architecture.md')
      .split(/^## /m)
      .find((part) => part.startsWith('The main path'));
    const files = listNamedPaths(section ?? '').filter((path) => /\.(ts|rs)$/.test(path));
    expect(files.length).toBeGreaterThanOrEqual(10);
    expect(files.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });

  it('README has the two commands and the table of places', () => {
    const readme = readText('README.md');
    for (const needed of ['make run', 'make test', 'I want to change']) expect(readme).toContain(needed);
  });
});

describe('versions', () => {
  const version: string = JSON.parse(readText('package.json')).version;

  it('are one and the same everywhere', () => {
    const wrong = listFiles(/^packages\/[^/]+\/package\.json$/).filter(
      (path) => JSON.parse(readText(path)).version !== version,
    );
    expect(wrong).toEqual([]);
    expect(readText('guest-agent/Cargo.toml')).toContain(`version = "${version}"`);
  });

  it('stand at the top of CHANGELOG.md', () => {
    expect(/^## (\S+)/m.exec(readText('CHANGELOG.md'))?.[1]).toBe(version);
  });
});
