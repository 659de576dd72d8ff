/** Imports point one way, between packages and inside the control plane; nothing imports in a circle. */
import { describe, expect, it } from 'vitest';
import { controlPlaneRules, findCycles, impureCalls, packageRules, pureFolders } from './import-rules.js';
import { listOwnImports, listPackageSources, readText } from './source-files.js';

const sources = listPackageSources();
const imports = sources.flatMap(listOwnImports);
const packageOf = (path: string): string => path.split('/')[1]!;
/** Folder below src, or '' for a file directly in it. */
const folderOf = (path: string): string => path.split('/').slice(3, -1)[0] ?? '';

describe('between packages', () => {
  it('every package has a rule', () => {
    const unknown = [...new Set(sources.map(packageOf))].filter((name) => !(name in packageRules));
    expect(unknown).toEqual([]);
  });

  it('imports only what its rule allows', () => {
    const wrong = imports
      .filter((found) => found.package !== undefined && found.package !== packageOf(found.from))
      .filter((found) => !packageRules[packageOf(found.from)]!.includes(found.package!))
      .map((found) => `${found.from} imports ${found.package}`);
    expect([...new Set(wrong)]).toEqual([]);
  });

  it('no relative import leaves its package', () => {
    const wrong = imports
      .filter((found) => found.file !== undefined && packageOf(found.file) !== packageOf(found.from))
      .map((found) => `${found.from} imports ${found.file}`);
    expect(wrong).toEqual([]);
  });
});

describe('inside the control plane', () => {
  const inside = imports.filter(
    (found) => packageOf(found.from) === 'control-plane' && found.file && !found.from.endsWith('.test.ts'),
  );
  const isLeaf = (file: string): boolean => listOwnImports(file).every((found) => found.file === undefined);

  it('every folder has a rule', () => {
    const folders = sources.filter((path) => packageOf(path) === 'control-plane').map(folderOf);
    expect([...new Set(folders)].filter((name) => name !== '' && !(name in controlPlaneRules))).toEqual([]);
  });

  it('a folder imports only what its rule allows', () => {
    const wrong = inside.filter(({ from, file }) => {
      const [own, other] = [folderOf(from), folderOf(file!)];
      if (own === '' || own === other) return false;
      if (other === '') return !isLeaf(file!);
      return !controlPlaneRules[own]?.includes(other);
    });
    expect(wrong.map(({ from, file }) => `${from} imports ${file}`)).toEqual([]);
  });

  it('domain and scheduler are pure', () => {
    const wrong = sources
      .filter((path) => pureFolders.some((folder) => path.startsWith(folder)) && !path.endsWith('.test.ts'))
      .flatMap((path) =>
        impureCalls
          .filter(({ pattern }) => pattern.test(readText(path)))
          .map(({ what }) => `${path} ${what}`),
      );
    expect(wrong).toEqual([]);
  });
});

describe('cycles', () => {
  it('are found where there is one', () => {
    const imports = new Map([
      ['a', ['b']],
      ['b', ['c', 'd']],
      ['c', ['a']],
      ['d', []],
      ['e', ['e']],
    ]);
    expect(findCycles(imports)).toEqual([['a', 'b', 'c'], ['e']]);
  });

  it('do not exist between our files', () => {
    const graph = new Map<string, string[]>(sources.map((path) => [path, []]));
    for (const { from, file } of imports) if (file) graph.get(from)!.push(file);
    expect(findCycles(graph)).toEqual([]);
  });
});
