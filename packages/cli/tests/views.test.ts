/** Options of views: what goes to the server, and what is refused here. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { FakeApi } from './fake-api.js';
import { openForEachTest, type World } from './world.js';

let api: FakeApi;
let world: World;
openForEachTest((made) => {
  ({ api, world } = made);
  api.add('abcdef');
});

it('create takes a view by flags, as JSON, and from a file', async () => {
  const file = path.join(world.home, 'view.json');
  writeFileSync(file, ' {"readonly": ["/etc"], "network": "none"}\n');
  await world.run([
    'create',
    'x',
    '--hide',
    '/srv',
    '--hide',
    '/opt',
    '--read-only',
    '/etc',
    '--private-tmp',
  ]);
  await world.run(['create', 'x', '--view-strength', 'mask', '--hide', '/srv']);
  await world.run(['create', 'x', '--view', '{"hide": ["/srv"], "private_tmp": true}']);
  await world.run(['create', 'x', '--view', file]);
  await world.run(['create', 'x']);
  expect(api.creates.map((body) => body['view'])).toEqual([
    { hide: ['/srv', '/opt'], readonly: ['/etc'], private_tmp: true },
    { strength: 'mask', hide: ['/srv'] },
    { hide: ['/srv'], private_tmp: true },
    { readonly: ['/etc'], network: 'none' },
    undefined,
  ]);
});

it('run takes one for its command, in a sandbox that is there and in a new one, or goes outside', async () => {
  await world.run(['run', '--hide', '/srv', 'abc', '--private-tmp', '--', 'ls', '--hide', 'x']);
  await world.run(['run', 'abc', '--no-view', '--', 'ls']);
  await world.run(['run', '--view', '{"strength": "mask"}', 'abc', 'ls']);
  await world.run(['run', '--image', 'x', '--read-only', '/etc', 'ls']);
  await world.run(['run', 'abc', 'ls']);
  const [flags, outside, json, inNew, plain] = api.commands.starts;
  expect(flags?.command?.args).toEqual(['--hide', 'x']);
  expect(flags?.view).toMatchObject({ hide: ['/srv'], privateTmp: true });
  expect(outside?.view).toMatchObject({ strength: 'none', hide: [] });
  expect(json?.view).toMatchObject({ strength: 'mask' });
  expect(inNew?.view).toMatchObject({ readonly: ['/etc'] });
  expect(api.creates[0]).not.toHaveProperty('view');
  expect(plain?.view).toBeUndefined();
});

it.each([
  [['--view', '{"hides": ["/srv"]}'], /--view: has no "hides": it may hold strength, hide/],
  [['--view', '{"hide": "/srv"}'], /--view: hide must be a list of paths/],
  [['--view', '{"hide": [1]}'], /--view: hide must be a list of paths/],
  [['--view', '{hide}'], /--view is no JSON/],
  [['--view', 'missing.json'], /--view: missing.json cannot be read/],
  [['--view', '{}', '--hide', '/srv'], /--view and the other options of a view exclude each other/],
  [['--view-strength', 'none'], /Allowed choices are sealed, mask/],
])('create %j is wrong usage', async (flags, message) => {
  const { code, stderr } = await world.run(['create', 'x', ...flags]);
  expect([code, api.creates]).toEqual([2, []]);
  expect(stderr).toMatch(message);
});

it('run says wrong options before it makes a sandbox', async () => {
  const { code, stderr } = await world.run(['run', '--image', 'x', '--no-view', '--hide', '/a', 'ls']);
  expect(code).toBe(2);
  expect(stderr).toContain('--no-view and the other options of a view exclude each other');
  expect(api.creates).toEqual([]);
});

it('get shows the view in a line', async () => {
  expect((await world.run(['get', 'abcdef'])).stdout).not.toMatch(/^view/m);
  api.add('second', { view: { hide: ['/srv', '/opt'], private_tmp: true, network: 'none' } });
  expect((await world.run(['get', 'second'])).stdout).toMatch(
    /^view +sealed; hides \/srv, \/opt; a \/tmp of its own; network none$/m,
  );
  expect(JSON.parse((await world.run(['get', 'second', '-o', 'json'])).stdout).view.hide).toHaveLength(2);
});
