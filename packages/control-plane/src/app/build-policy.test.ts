import type { SchemaIssue } from '@sandlot/protocol';
import { expect, it } from 'vitest';
import { buildPolicy } from './build-policy.js';

const names = { allow: 'network_allowlist', deny: 'network_denylist' };

it('writes entries in canonical form, each once', () => {
  const issues: SchemaIssue[] = [];
  const allowlist = ['A.org', 'a.org', '1.1.1.1', '1.1.1.1/32'];
  expect(buildPolicy({ allowlist, denylist: null }, 3, names, issues)).toEqual({
    generation: 3,
    allowlist: ['a.org', '1.1.1.1/32'],
    denylist: null,
  });
  expect(issues).toEqual([]);
});

it('says where in the list each bad entry is', () => {
  const issues: SchemaIssue[] = [];
  buildPolicy({ allowlist: null, denylist: ['a.org', 'a.org:80', 'a.org/x'] }, 0, names, issues);
  expect(issues).toEqual([
    { param: 'network_denylist.1', details: expect.stringContaining('a denied name cannot have a port') },
    { param: 'network_denylist.2', details: '"a.org/x": a path is not allowed.' },
  ]);
});
