import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Utf8Boundary } from './utf8-boundary.js';

function cut(bytes: Buffer, sizes: number[]): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length]!;
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return pieces;
}

it('never splits a character, so that each event can be decoded by itself', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1 }),
      (text, sizes) => {
        const boundary = new Utf8Boundary();
        const events = cut(Buffer.from(text), sizes).map((piece) => boundary.push(piece));
        events.push(boundary.flush());
        expect(events.map((event) => event.toString('utf8')).join('')).toBe(
          Buffer.from(text).toString('utf8'),
        );
      },
    ),
  );
});

it('loses no byte of what is not UTF-8', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 60 }),
      fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1 }),
      (bytes, sizes) => {
        const boundary = new Utf8Boundary();
        const events = cut(Buffer.from(bytes), sizes).map((piece) => boundary.push(piece));
        events.push(boundary.flush());
        expect([...Buffer.concat(events)]).toEqual([...bytes]);
      },
    ),
  );
});

it('holds back half a character until its end comes', () => {
  const boundary = new Utf8Boundary();
  expect(boundary.push(Buffer.from([0x61, 0xc3]))).toEqual(Buffer.from('a'));
  expect(boundary.push(Buffer.from([0xa9]))).toEqual(Buffer.from('é'));
  expect(boundary.flush().length).toBe(0);
});
