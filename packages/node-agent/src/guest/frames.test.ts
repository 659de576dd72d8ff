import fc from 'fast-check';
import { expect, it } from 'vitest';
import { encodeFrame, FrameReader } from './frames.js';

it('gives back the frames that were written, however the bytes are chunked', () => {
  const frame = fc.record({
    kind: fc.integer({ min: 0, max: 255 }),
    payload: fc.uint8Array({ maxLength: 300 }),
  });
  fc.assert(
    fc.property(
      fc.array(frame, { maxLength: 12 }),
      fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1 }),
      (frames, cuts) => {
        const bytes = Buffer.concat(frames.map(({ kind, payload }) => encodeFrame(kind, payload)));
        const reader = new FrameReader();
        const seen: { kind: number; payload: number[] }[] = [];
        for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
          const size = cuts[turn % cuts.length]!;
          for (const { kind, payload } of reader.push(bytes.subarray(at, at + size)))
            seen.push({ kind, payload: [...payload] });
          at += size;
        }
        expect(seen).toEqual(frames.map(({ kind, payload }) => ({ kind, payload: [...payload] })));
        expect(reader.pendingBytes).toBe(0);
      },
    ),
  );
});

it('keeps half a frame for the next chunk', () => {
  const reader = new FrameReader();
  const bytes = encodeFrame(1, 'hello');
  expect(reader.push(bytes.subarray(0, 7))).toEqual([]);
  expect(reader.pendingBytes).toBe(7);
  expect(reader.push(bytes.subarray(7))).toEqual([{ kind: 1, payload: Buffer.from('hello') }]);
});

it('refuses a length that no frame has', () => {
  const reader = new FrameReader();
  expect(() => reader.push(Buffer.from([1, 0xff, 0xff, 0xff, 0xff]))).toThrow(/frame of 4294967295 bytes/);
});
