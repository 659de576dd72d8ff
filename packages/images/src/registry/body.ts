/**
 * Bodies of HTTP answers: bounded in size, and never waited for without end. Called by client and download.
 */
import { ImageError } from '../store.js';
import { SilenceError, type TransportResponse } from './transport.js';

/** Chunks of a body; rejects with {@link SilenceError} if nothing comes for `silenceMs`. */
export async function* readChunks(response: TransportResponse, silenceMs: number): AsyncGenerator<Buffer> {
  const { body } = response;
  // Undefined while the consumer works: a slow disk of ours is not the registry's silence.
  let waitingSince: number | undefined = Date.now();
  // One timer for all chunks, of which there are many thousands.
  const timer = setInterval(
    () => {
      const isSilent = waitingSince !== undefined && Date.now() - waitingSince >= silenceMs;
      if (isSilent) body.destroy(new SilenceError(silenceMs));
    },
    Math.max(10, silenceMs / 4),
  );
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      waitingSince = undefined;
      yield chunk;
      waitingSince = Date.now();
    }
  } finally {
    clearInterval(timer);
  }
}

/** The whole body. Throws `too-large`. */
export async function readBounded(
  response: TransportResponse,
  maxBytes: number,
  what: string,
  silenceMs: number,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of readChunks(response, silenceMs)) {
    size += chunk.length;
    if (size > maxBytes) {
      throw new ImageError('too-large', `${what} is larger than ${maxBytes} bytes, the limit here`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
