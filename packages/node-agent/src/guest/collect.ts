/** Reads a stream that must fit into memory. Used for answers of the guest, bodies of requests and windows of files. */
import type { Readable } from 'node:stream';

/** All bytes of `stream`; throws what `tooLarge` makes as soon as there are more than `limitBytes`. */
export async function collect(stream: Readable, limitBytes: number, tooLarge: () => Error): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    size += (chunk as Buffer).length;
    if (size > limitBytes) throw tooLarge();
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks);
}
