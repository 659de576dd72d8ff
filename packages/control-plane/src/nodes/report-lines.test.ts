import { Readable } from 'node:stream';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { readReportLines } from './report-lines.js';

async function read(chunks: Buffer[]): Promise<unknown[]> {
  const lines: unknown[] = [];
  for await (const line of readReportLines(Readable.from(chunks))) lines.push(line);
  return lines;
}

it('gives the same lines however the bytes are cut', async () => {
  const message = fc.string({ unit: 'grapheme', maxLength: 30 });
  await fc.assert(
    fc.asyncProperty(
      fc.array(message, { maxLength: 8 }),
      fc.array(fc.nat(), { maxLength: 12 }),
      async (texts, cuts) => {
        const objects = texts.map((text) => ({ sandboxId: text, keep: true }));
        const bytes = Buffer.from(objects.map((object) => `${JSON.stringify(object)}\n`).join(''));
        const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort(
          (left, right) => left - right,
        );
        const chunks = [0, ...places].map((from, index) =>
          bytes.subarray(from, places[index] ?? bytes.length),
        );
        expect(await read(chunks.filter((chunk) => chunk.length > 0))).toEqual(objects);
      },
    ),
  );
});

it('refuses a line without an end, and what is no JSON', async () => {
  await expect(read([Buffer.alloc(5 * 1024 * 1024, 97)])).rejects.toThrow(/longer than/);
  await expect(read([Buffer.from('{"a":\n')])).rejects.toThrow();
  expect(await read([Buffer.from('{"half":1')])).toEqual([]);
});
