import fc from 'fast-check';
import { expect, it } from 'vitest';
import { checkEgressEntry, EgressEntryError, formatEgressEntry, parseEgressEntry } from './egress-entries.js';

const canonicalEntry = (entry: string): string => formatEgressEntry(parseEgressEntry(entry));

it.each([
  ['PyPI.org', 'pypi.org'],
  ['example.org.', 'example.org'],
  ['bücher.example', 'xn--bcher-kva.example'],
  ['*.Example.org', '*.example.org'],
  ['*.example.org:443', '*.example.org:443'],
  ['1.2.3.4', '1.2.3.4/32'],
  ['1.2.3.4:80', '1.2.3.4/32:80'],
  ['10.1.2.3/8', '10.0.0.0/8'],
  ['0.0.0.0/0', '0.0.0.0/0'],
  ['1.2.3.0/24:1000-2000', '1.2.3.0/24:1000-2000'],
  ['a:80-80', 'a:80'],
  ['_dmarc.example.org', '_dmarc.example.org'],
  ['*.Example.org:443', '*.example.org:443'],
  ['1.2.3.4/16:80-90', '1.2.0.0/16:80-90'],
  ['localhost', 'localhost'],
])('%s becomes %s', (entry, expected) => {
  expect(canonicalEntry(entry)).toBe(expected);
  expect(canonicalEntry(expected)).toBe(expected);
});

it.each([
  'https://example.org',
  'example.org/path',
  'user@example.org',
  'example.org?x',
  '*',
  '*.org',
  'a.*.org',
  'exa mple.org',
  '::1',
  '[::1]:80',
  '1.2.3',
  '1.2.3.256',
  '1.2.3.4/33',
  '1.2.3.4/',
  'example.org:0',
  'example.org:65536',
  'example.org:90-80',
  'example.org:',
  '-a.org',
  '',
  '.',
  '../../etc',
  '0x7f.1',
  '*.1.2.3.4',
  'a.1',
  '*.*',
  'a.*.test',
  '*a.test',
  'fe80::1/64',
  'a.test:70000',
  'a.test:http',
  '1.2.3.999',
  '300.1.2.3',
  'a..test',
  'a.test 1.2.3.4',
  'a.test\nadd rule',
  `${'a'.repeat(64)}.test`,
  '01.2.3.4',
  '1.2.3.4/08',
  '0x7f',
  'ex%61mple.org',
  'example.org\\evil',
  'example.org\u0001',
  'b\u00fccher%2f.org',
  'xn--a',
  `${'a.'.repeat(150)}org`,
])('refuses %j', (entry) => {
  expect(() => canonicalEntry(entry)).toThrow(EgressEntryError);
});

it('never throws anything else, and what it gives is stable', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 40 }), (entry) => {
      try {
        const once = canonicalEntry(entry);
        expect(canonicalEntry(once)).toBe(once);
        // Nothing that means something to nft.
        expect(once).toMatch(/^[a-z0-9_*.:/-]+$/);
      } catch (error) {
        expect(error).toBeInstanceOf(EgressEntryError);
      }
    }),
  );
});

it('names the entry and the reason, and shortens a long one', () => {
  expect(() => parseEgressEntry('Example.org:0')).toThrow(
    '"Example.org:0": the port must be 1-65535 or low-high',
  );
  expect(() => parseEgressEntry('a'.repeat(301))).toThrow(/^"a{80}…": it is longer than 300 characters$/);
});

it.each([
  ['169.254.169.254/32', 'allow'],
  ['127.0.0.0/8:80', 'allow'],
  ['239.1.0.0/16', 'allow'],
  ['example.org:443', 'deny'],
] as const)('%s means nothing in an %s list', (entry, list) => {
  expect(canonicalEntry(entry)).toBe(entry);
  expect(() => checkEgressEntry(parseEgressEntry(entry), list)).toThrow(EgressEntryError);
});

it.each([
  ['169.254.169.254/32', 'deny'],
  ['0.0.0.0/0', 'allow'],
  ['128.0.0.0/8', 'allow'],
  ['10.77.0.0/16:80', 'allow'],
  ['10.0.0.0/8:80', 'deny'],
  ['example.org:443', 'allow'],
] as const)('%s is good in an %s list', (entry, list) => checkEgressEntry(parseEgressEntry(entry), list));
