import { expect, it } from 'vitest';
import { compileSchema } from './schema.js';
import { guestViewOf, isSameView, maxViewPathLength, maxViewPaths, View, viewIssues } from './view.js';

const check = compileSchema(View);
const paths = (count: number) => Array.from({ length: count }, (_, at) => `/p${at}`);

it.each([
  {},
  { strength: 'none' },
  { hide: ['/srv', '/srv/shop/.git', '/a b/ü\n', '/...', '/.hidden/..x'] },
  { strength: 'mask', hide: paths(maxViewPaths), readonly: ['/etc'], private_tmp: true, network: 'machine' },
])('%j is a view', (view) => {
  expect([...check(view), ...viewIssues(view as View, 'view')]).toEqual([]);
});

it.each(['srv', '', '/', '/srv/', '//srv', '/srv//x', '/./srv', '/srv/..', '/srv/../x', '/a\0b'])(
  'a path %j is none of a view',
  (path) => {
    for (const list of ['hide', 'readonly'])
      expect(check({ [list]: ['/good', path] })).toEqual([
        { param: `${list}.1`, details: expect.stringContaining('an absolute path below /') },
      ]);
  },
);

it.each([
  [{ hides: ['/srv'] }, 'hides'],
  [{ hide: '/srv' }, 'hide'],
  [{ hide: paths(maxViewPaths + 1) }, 'hide'],
  [{ readonly: [`/${'x'.repeat(maxViewPathLength)}`] }, 'readonly.0'],
  [{ strength: 'strong' }, 'strength'],
  [{ network: 'all' }, 'network'],
  [{ private_tmp: 1 }, 'private_tmp'],
])('%j is none, because of %s', (view, param) => {
  expect(check(view).map((issue) => issue.param)).toEqual([param]);
});

it.each([
  [{ strength: 'none', hide: ['/srv'] }, 'view'],
  [{ hide: ['/a', '/b', '/a'] }, 'view.hide'],
  [{ network: 'machine' }, 'view.network'],
  [{ strength: 'mask', network: 'none' }, 'view.network'],
] as [View, string][])('%j contradicts itself in %s', (view, param) => {
  expect(check(view)).toEqual([]);
  expect(viewIssues(view, 'view').map((issue) => issue.param)).toEqual([param]);
});

it('is sealed unless it says otherwise, and "none" is no view', () => {
  expect(guestViewOf({})).toEqual({ strength: 'sealed' });
  expect(guestViewOf({ hide: [], readonly: ['/etc'], private_tmp: true, network: 'none' })).toEqual({
    strength: 'sealed',
    readonly: ['/etc'],
    privateTmp: true,
    network: 'none',
  });
  expect(guestViewOf({ strength: 'none' })).toBeUndefined();
});

it('is the same whatever the order and what is said of the usual', () => {
  const view = { strength: 'sealed', hide: ['/a', '/b'] } as const;
  expect(isSameView({ ...view, hide: ['/a', '/b'] }, { strength: 'sealed', hide: ['/b', '/a'] })).toBe(true);
  expect(isSameView({ strength: 'sealed' }, { strength: 'sealed', network: 'own', privateTmp: false })).toBe(
    true,
  );
  for (const other of [
    { strength: 'mask', hide: ['/a', '/b'] },
    { strength: 'sealed', hide: ['/a'] },
    { strength: 'sealed', readonly: ['/a', '/b'] },
    { strength: 'sealed', hide: ['/a', '/b'], network: 'none' },
    { strength: 'sealed', hide: ['/a', '/b'], privateTmp: true },
  ] as const)
    expect(isSameView({ ...view, hide: ['/a', '/b'] }, { ...other } as never)).toBe(false);
});
