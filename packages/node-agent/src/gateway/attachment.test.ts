import { expect, it } from 'vitest';
import { formatPosition, parseAttachment } from './attachment.js';

it('reads what our SDK says, and nothing when it says nothing', () => {
  expect(parseAttachment('')).toEqual({});
  expect(parseAttachment('reader=a-b&confirms=1&stdout=12&stderr=0&pty=3&dropped=4&more=x')).toEqual({
    reader: 'a-b',
    confirms: 1,
    stdout: 12,
    stderr: 0,
    pty: 3,
    dropped: 4,
  });
});

it.each(['stdout=-1', 'stdout=', 'pty=1.5', 'stderr=0x10', 'dropped=99999999999999999999'])(
  'refuses %s',
  (text) => {
    expect(() => parseAttachment(text)).toThrow('must be a count of bytes');
  },
);

it('reads again what it writes', () => {
  const position = { stdout: 1, stderr: 2, pty: 3, dropped: 2 ** 40 };
  expect(parseAttachment(formatPosition(position))).toEqual(position);
});
