/**
 * Sends one HTTP request and hands back the answer as a stream. Two carriers: Node's own client
 * (default; keeps connections, speaks to unix sockets, sends a known length with a streamed body)
 * and a `fetch` that the caller brings. Called by the API client and the gateway client.
 */
import http from 'node:http';
import https from 'node:https';
import { clientKeepsIdleMs } from '@sandlot/protocol/idle-connections';
import { AbortedError, ConnectionError, DeadlineError } from '../errors.js';
import { codeOf, connectionText } from './connection-codes.js';
import { dropIdleOnLoss } from './idle-connections.js';

/** One request. */
export interface TransportRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: Uint8Array | AsyncIterable<Uint8Array> | undefined;
  /** Length of a streamed body in bytes; absent: sent in chunks. */
  contentLength?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Fails when nothing has moved on the connection for this long; 0: never. */
  idleTimeoutMs: number;
}

/** One answer. `body` must be read to its end or discarded. */
export interface TransportResponse {
  status: number;
  header(name: string): string | undefined;
  body: AsyncIterable<Uint8Array>;
  discard(): void;
}

/** A carrier of requests; owns its connections. */
export interface Transport {
  send(request: TransportRequest): Promise<TransportResponse>;
  /** Closes idle connections. */
  close(): void;
}

const keptConnections = { keepAlive: true, maxFreeSockets: 32, timeout: clientKeepsIdleMs };

/** Node's HTTP client. `socketPath` sends everything to a unix socket, whatever the URL's host. */
export class NodeTransport implements Transport {
  // Many sandboxes stream at once: no limit on open connections, a small store of idle ones.
  readonly #plain = dropIdleOnLoss(new http.Agent({ ...keptConnections }));
  readonly #tls = dropIdleOnLoss(new https.Agent({ ...keptConnections }));

  constructor(readonly socketPath?: string) {}

  close(): void {
    this.#plain.destroy();
    this.#tls.destroy();
  }

  send(request: TransportRequest): Promise<TransportResponse> {
    return new Promise((resolve, reject) => {
      const headers: Record<string, string | number> = { ...request.headers };
      if (request.body instanceof Uint8Array) headers['content-length'] = request.body.byteLength;
      else if (request.contentLength !== undefined) headers['content-length'] = request.contentLength;
      const module = request.url.startsWith('https:') ? https : http;
      const outgoing = module.request(request.url, {
        method: request.method,
        headers,
        agent: request.url.startsWith('https:') ? this.#tls : this.#plain,
        ...(this.socketPath ? { socketPath: this.socketPath } : {}),
      });
      abortOnSignal(outgoing, request.signal);
      // After the head of the answer, a destroyed request shows as a plain reset of its body.
      let idle: IdleError | undefined;
      const translate = (cause: unknown) => asTransportError(idle ?? cause, request);
      const fail = (cause: unknown) => reject(translate(cause));
      outgoing.setTimeout(request.idleTimeoutMs, () => {
        idle = new IdleError();
        outgoing.destroy(idle);
      });
      outgoing.on('error', fail);
      outgoing.on('response', (incoming) => {
        // Who reads hears of it from the iterator; a stream that is closed between two reads has no reader.
        incoming.on('error', () => undefined);
        resolve({
          status: incoming.statusCode ?? 0,
          header: (name) => {
            const value = incoming.headers[name];
            return Array.isArray(value) ? value[0] : value;
          },
          body: readBody(incoming, translate),
          discard: () => incoming.resume(),
        });
      });
      if (request.body === undefined) outgoing.end();
      else if (request.body instanceof Uint8Array) outgoing.end(request.body);
      else
        writeBody(outgoing, request.body).catch((cause) =>
          outgoing.destroy(cause instanceof Error ? cause : new Error(String(cause))),
        );
    });
  }
}

/** Carries requests by a `fetch` of the caller's (a proxy, a browser, a test). */
export class FetchTransport implements Transport {
  constructor(readonly fetchFunction: typeof fetch) {}

  close(): void {}

  async send(request: TransportRequest): Promise<TransportResponse> {
    const streamed = request.body !== undefined && !(request.body instanceof Uint8Array);
    const headers = { ...request.headers };
    if (request.contentLength !== undefined) headers['content-length'] = String(request.contentLength);
    try {
      const answer = await this.fetchFunction(request.url, {
        method: request.method,
        headers,
        body: streamed
          ? (ReadableStream.from(request.body as AsyncIterable<Uint8Array>) as never)
          : (request.body as never),
        redirect: 'manual',
        ...(streamed ? { duplex: 'half' } : {}),
        ...(request.signal ? { signal: request.signal } : {}),
      } as RequestInit);
      const body = answer.body ?? ReadableStream.from([] as Uint8Array[]);
      return {
        status: answer.status,
        header: (name) => answer.headers.get(name) ?? undefined,
        body: readBody(body as unknown as AsyncIterable<Uint8Array>, (cause) =>
          asTransportError(cause, request),
        ),
        discard: () => void answer.body?.cancel().catch(() => undefined),
      };
    } catch (cause) {
      throw asTransportError(cause, request);
    }
  }
}

class IdleError extends Error {
  readonly code = 'IDLE';
}

/**
 * Node's own `signal` option also destroys a connection whose answer has come whole and that is on its
 * way back to its agent, when nobody listens for its errors: then there is nothing to end any more.
 */
function abortOnSignal(outgoing: http.ClientRequest, signal: AbortSignal | undefined): void {
  if (signal === undefined) return;
  let incoming: http.IncomingMessage | undefined;
  outgoing.once('response', (message) => {
    incoming = message;
  });
  const abort = () => {
    if (incoming?.complete) incoming.resume();
    else outgoing.destroy(new Error('the signal fired', { cause: signal.reason }));
  };
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { once: true });
  outgoing.once('close', () => signal.removeEventListener('abort', abort));
}

async function writeBody(outgoing: http.ClientRequest, body: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of body) {
    // An answer before the end of the body (a refusal) closes the request: stop reading the source.
    if (outgoing.destroyed) return;
    if (!outgoing.write(chunk)) await drained(outgoing);
  }
  outgoing.end();
}

function drained(outgoing: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      outgoing.off('drain', done);
      outgoing.off('close', done);
      resolve();
    };
    outgoing.on('drain', done);
    outgoing.on('close', done);
  });
}

async function* readBody(source: AsyncIterable<Uint8Array>, translate: (cause: unknown) => Error) {
  try {
    yield* source;
  } catch (cause) {
    throw translate(cause);
  }
}

function asTransportError(cause: unknown, request: TransportRequest): Error {
  const where = `${request.method} ${request.url.split('?')[0]}`;
  if (request.signal?.aborted) {
    const reason = request.signal.reason;
    if (reason instanceof DeadlineError) return reason;
    return new AbortedError(`${where} was cancelled`, { cause: reason });
  }
  const code = codeOf(cause);
  if (code === 'IDLE') {
    return new DeadlineError(`${where}: nothing moved for ${Math.round(request.idleTimeoutMs / 1000)} s`, {
      code: 'IDLE_TIMEOUT',
      cause,
    });
  }
  // A listener with TLS that is spoken to without it says nothing, and hangs up.
  const unanswered =
    (cause as Error | undefined)?.message === 'socket hang up' && request.url.startsWith('http:');
  const advice = unanswered ? ' before it answered; a server with TLS has an https:// URL' : '';
  return new ConnectionError(`${where}: ${connectionText(code, cause)}${advice}`, {
    code: code ?? 'CONNECTION',
    cause,
  });
}
