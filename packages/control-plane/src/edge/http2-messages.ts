/**
 * HTTP/2 requests and answers that behave as those of HTTP/1.1 where Node's own do not, so that the forwarder
 * and the API need not know which they have. Made by `secure-listener.ts` for every stream.
 */
import type { IncomingMessage, OutgoingHttpHeader, OutgoingHttpHeaders } from 'node:http';
import { constants, Http2ServerRequest, Http2ServerResponse, type ServerHttp2Stream } from 'node:http2';
import { isHopByHop } from './hop-headers.js';

/** A request whose body fails when the client breaks it off; Node's own then just ends, as if it were whole. */
export class FrontRequest extends Http2ServerRequest {
  constructor(...args: ConstructorParameters<typeof Http2ServerRequest>) {
    super(...args);
    const [stream] = args;
    const cut = () => {
      if (this.readableEnded || this.destroyed) return;
      this.destroy(Object.assign(new Error('the client broke off the request'), { code: 'ECONNRESET' }));
    };
    // Before Node's own listeners, which make an end of both.
    stream.prependOnceListener('close', () => {
      if (stream.rstCode !== constants.NGHTTP2_NO_ERROR) cut();
    });
    stream.prependOnceListener('end', () => {
      // Reset without an error code: an end that the client has not sent.
      if (stream.closed && stream.aborted) cut();
    });
  }

  /** Who destroys a body that has not come whole wants no more of it, nor of the call. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const stream = this.stream as ServerHttp2Stream | undefined;
    if (!this.readableEnded && stream && !stream.closed) stream.close(constants.NGHTTP2_CANCEL);
    // As IncomingMessage has it: nobody need listen. The API stops listening once it has answered.
    done(this.listenerCount('error') > 0 ? error : null);
  }
}

type HeaderList = readonly OutgoingHttpHeader[];

/** An answer that takes what `ServerResponse` takes. */
export class FrontResponse extends Http2ServerResponse {
  constructor(...args: ConstructorParameters<typeof Http2ServerResponse>) {
    super(...args);
    const [stream] = args;
    // Missing in Node's own.
    Object.defineProperty(this, 'destroyed', { get: () => stream.destroyed });
  }

  /** Takes the flat list of HTTP/1.1's raw headers, too, and has no place for a status message. */
  override writeHead(
    statusCode: number,
    second?: string | OutgoingHttpHeaders | HeaderList,
    third?: OutgoingHttpHeaders | HeaderList,
  ): this {
    const headers = typeof second === 'string' ? third : second;
    super.writeHead(statusCode, ofStream(isList(headers) ? grouped(headers) : (headers ?? {})));
    return this;
  }

  /** Takes pairs of name and value, too. */
  override addTrailers(trailers: OutgoingHttpHeaders | readonly [string, string][]): void {
    super.addTrailers(isList(trailers) ? grouped(trailers.flat()) : trailers);
  }

  /** Breaks the answer off. Without an error code clients take the part that has come for the whole. */
  override destroy(error?: Error): this {
    super.destroy(error ?? new Error('the answer was broken off'));
    return this;
  }
}

/** True when a body follows the head of a request; its length need not be known. */
export function hasBody(incoming: IncomingMessage | Http2ServerRequest): boolean {
  if ('stream' in incoming) return !incoming.stream.endAfterHeaders;
  const { 'content-length': length, 'transfer-encoding': encoding } = incoming.headers;
  return encoding !== undefined || (length !== undefined && length !== '0');
}

function isList<T extends readonly unknown[]>(value: T | object | undefined): value is T {
  return Array.isArray(value);
}

/** Without what speaks of a connection: HTTP/2 forbids it, and our API says `connection: close` at times. */
function ofStream(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  const kept = Object.entries(headers).filter(([name]) => !isHopByHop(name));
  return Object.fromEntries(kept);
}

/** A header that comes twice becomes a list, and names are in lower case as HTTP/2 has them. */
function grouped(flat: HeaderList): OutgoingHttpHeaders {
  const result: Record<string, string | string[]> = {};
  for (let at = 0; at + 1 < flat.length; at += 2) {
    const name = String(flat[at]).toLowerCase();
    const known = result[name];
    const value = String(flat[at + 1]);
    result[name] = known === undefined ? value : [known, value].flat();
  }
  return result;
}
