/** Holds the framer: however a stream is cut, the same lines come out. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LineFramer } from './line-framer.js';

const line = fc.string({ unit: 'grapheme' }).filter((text) => !/[\r\n]/.test(text));

describe('LineFramer', () => {
  it('gives the same lines for every way to cut the stream', () => {
    fc.assert(
      fc.property(
        fc.array(line, { maxLength: 20 }),
        fc.array(fc.nat(400), { maxLength: 20 }),
        fc.constantFrom('\n', '\r\n'),
        (lines, cuts, end) => {
          const stream = Buffer.from(lines.map((each) => each + end).join(''));
          const framer = new LineFramer(1_000_000);
          const found: string[] = [];
          let at = 0;
          for (const cut of [...cuts.map((each) => Math.min(each, stream.length)), stream.length].sort(
            (a, b) => a - b,
          )) {
            found.push(...framer.push(stream.subarray(at, cut)));
            at = cut;
          }
          expect(found).toEqual(lines);
        },
      ),
    );
  });

  it('keeps a partial line for the next chunk', () => {
    const framer = new LineFramer(100);
    expect(framer.push(Buffer.from('a\nb'))).toEqual(['a']);
    expect(framer.push(Buffer.from('c'))).toEqual([]);
    expect(framer.push(Buffer.from('\n\n'))).toEqual(['bc', '']);
  });

  it('refuses a line without an end', () => {
    const framer = new LineFramer(10);
    framer.push(Buffer.from('12345'));
    expect(() => framer.push(Buffer.from('678901'))).toThrow(/longer than 10 bytes/);
  });
});
