import fc from 'fast-check';
import { expect, it } from 'vitest';
import { canonicalEntries, canonicalEntry, checkForList, EgressEntryError } from './egress.js';
import { effectiveShape } from './shape.js';

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
])('refuses %j', (entry) => {
  expect(() => canonicalEntry(entry)).toThrow(EgressEntryError);
});

it('never throws anything else, and what it gives is stable', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', maxLength: 40 }), (entry) => {
      try {
        const once = canonicalEntry(entry);
        expect(canonicalEntry(once)).toBe(once);
      } catch (error) {
        expect(error).toBeInstanceOf(EgressEntryError);
      }
    }),
  );
});

it('drops duplicates', () => {
  expect(canonicalEntries(['A.org', 'a.org', '1.1.1.1', '1.1.1.1/32'])).toEqual(['a.org', '1.1.1.1/32']);
});

it.each([
  [0.1, 0.1, { vcpus: 1, memoryMiB: 256, cpuLimit: 0.1 }],
  [1, 1, { vcpus: 1, memoryMiB: 1024, cpuLimit: 0 }],
  [1.5, 1.01, { vcpus: 2, memoryMiB: 1280, cpuLimit: 1.5 }],
  [16, 64, { vcpus: 16, memoryMiB: 65_536, cpuLimit: 0 }],
])('%d CPUs and %d GiB are booked in whole steps', (cpu, memory, expected) => {
  expect(effectiveShape(cpu, memory, 5)).toMatchObject({ ...expected, diskGiB: 5 });
});

it.each([
  ['169.254.169.254/32', 'allow'],
  ['127.0.0.0/8:80', 'allow'],
  ['239.1.0.0/16', 'allow'],
  ['example.org:443', 'deny'],
] as const)('%s means nothing in an %s list', (entry, list) => {
  expect(canonicalEntry(entry)).toBe(entry);
  expect(() => checkForList(entry, list)).toThrow(EgressEntryError);
});

it.each([
  ['169.254.169.254/32', 'deny'],
  ['0.0.0.0/0', 'allow'],
  ['128.0.0.0/8', 'allow'],
  ['10.77.0.0/16:80', 'allow'],
  ['10.0.0.0/8:80', 'deny'],
  ['example.org:443', 'allow'],
] as const)('%s is good in an %s list', (entry, list) => checkForList(entry, list));
