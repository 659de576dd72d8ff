/** Collects a stream of bytes up to a limit. Used for JSON answers and error bodies. */
import { TooLargeError } from '../errors.js';

/** All bytes of `source`; more than `maxBytes` is a {@link TooLargeError}. */
export async function readLimited(source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let total = 0;
  for await (const chunk of source) {
    total += chunk.byteLength;
    if (total > maxBytes) {
      throw new TooLargeError(`the answer is larger than ${maxBytes} bytes`, { code: 'ANSWER_TOO_LARGE' });
    }
    chunks.push(chunk);
  }
  return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : joinChunks(chunks, total);
}

/** One array of all chunks. */
export function joinChunks(chunks: Uint8Array[], total: number): Uint8Array {
  const joined = new Uint8Array(total);
  let at = 0;
  for (const chunk of chunks) {
    joined.set(chunk, at);
    at += chunk.byteLength;
  }
  return joined;
}
