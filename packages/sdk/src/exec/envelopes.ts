/** Messages in a stream of the Connect protocol: flags, length, data. Used by the service client. */
import { ConnectionError } from '../errors.js';
import { joinChunks } from '../http/read-limited.js';

/** Flags (1 byte) and length (4 bytes, big-endian). */
const headBytes = 5;
/** A message of output is 64 KiB; more than this is no stream of ours. */
const maxDataBytes = 64 * 1024 * 1024;

/** One message. */
export interface Envelope {
  flags: number;
  data: Uint8Array;
}

/** One message as bytes. */
export function writeEnvelope(flags: number, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(headBytes + data.byteLength);
  bytes[0] = flags;
  new DataView(bytes.buffer).setUint32(1, data.byteLength);
  bytes.set(data, headBytes);
  return bytes;
}

/** The messages of a body, however it is cut into chunks. Throws when it ends within one. */
export async function* readEnvelopes(body: AsyncIterable<Uint8Array>): AsyncGenerator<Envelope> {
  let waiting: Uint8Array[] = [];
  let size = 0;
  // Bytes that the next message, or its head, needs: chunks are joined once for each message only.
  let needed = headBytes;
  for await (const chunk of body) {
    waiting.push(chunk);
    size += chunk.byteLength;
    if (size < needed) continue;
    let bytes = waiting.length === 1 ? chunk : joinChunks(waiting, size);
    for (;;) {
      needed = neededBytes(bytes);
      if (bytes.byteLength < needed || bytes.byteLength < headBytes) break;
      yield { flags: bytes[0] as number, data: bytes.subarray(headBytes, needed) };
      bytes = bytes.subarray(needed);
    }
    waiting = bytes.byteLength === 0 ? [] : [bytes];
    size = bytes.byteLength;
  }
  if (size > 0) throw new ConnectionError('the stream broke off within a message', { code: 'STREAM_ENDED' });
}

function neededBytes(bytes: Uint8Array): number {
  if (bytes.byteLength < headBytes) return headBytes;
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
  if (length > maxDataBytes)
    throw new ConnectionError(`a message of the stream has ${length} bytes, which cannot be`, {
      code: 'BAD_ANSWER',
    });
  return headBytes + length;
}
