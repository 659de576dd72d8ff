/**
 * Bodies of HTTP answers: bounded in size, and never waited for without end. Called by client and download.
 */
import { ImageError } from '../store.js';
import { SilenceError } from './transport.js';

/** Chunks of a body; rejects with {@link SilenceError} if nothing comes for `silenceMs`. */
export async function* readChunks(response: Response, silenceMs: number): AsyncGenerator<Buffer> {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await withTimeout(reader.read(), silenceMs);
      if (done) return;
      yield Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    }
  } finally {
    // Also when the consumer leaves early; what is left of the transfer is of no use.
    reader.cancel().catch(() => undefined);
  }
}

/** The whole body. Throws `too-large`. */
export async function readBounded(
  response: Response,
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

function withTimeout<T>(promise: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new SilenceError(ms)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
