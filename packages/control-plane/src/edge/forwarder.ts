/**
 * Passes gateway traffic on to the node agent's socket, unread: bytes go through as they come, in both
 * directions, held back only by the slower side. The node checks the token. Called by `front-server.ts`.
 */
import { Agent, type ClientRequest, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { clientKeepsIdleMs } from '@sandlot/protocol';
import type { Logger } from 'pino';
import { requestIdHeader, requestIdOf } from '../request-id.js';
import { endToEndHeaders } from './hop-headers.js';
import { hasBody } from './http2-messages.js';

/** Counts what became of requests. */
export type CountOutcome = (outcome: 'ok' | 'unreachable' | 'client-gone' | 'broken') => void;

/** Idle connections kept to the node; a connection each is made beyond them, without a limit. */
const maxFreeSockets = 256;

/** A node agent that is being restarted is waited for this long, when nothing of the request is lost by it. */
const retryForMs = 3_000;
const retryPauseMs = 50;

/** Marks the last message of a Connect stream. */
const endStreamFlag = 0b10;
/** A second Start would run a command twice, a second StreamInput would type its input twice: they carry no id. */
const unrepeatable: ReadonlySet<string> = new Set(['Start', 'StreamInput']);

/** Forwards to one unix socket. */
export class Forwarder {
  readonly #agent: Agent;

  constructor(
    private readonly socketPath: string,
    private readonly log: Logger,
    private readonly count: CountOutcome,
    keepIdleMs = clientKeepsIdleMs,
  ) {
    // Closes idle connections only: one that carries a request is its own business.
    this.#agent = new Agent({ keepAlive: true, maxFreeSockets, timeout: keepIdleMs });
  }

  /** Passes one request on and its answer back. */
  forward(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const requestId = requestIdOf(incoming.headers);
    this.#attempt(incoming, outgoing, requestId, performance.now() + retryForMs);
  }

  /** Closes idle connections. */
  close(): void {
    this.#agent.destroy();
  }

  #attempt(incoming: IncomingMessage, outgoing: ServerResponse, requestId: string, retryUntil: number): void {
    const sent = this.#request(incoming, outgoing, requestId);
    if (sent === undefined) return;
    let answered: IncomingMessage | undefined;
    let bodyBegun = false;
    const onClientGone = () => {
      if (!outgoing.writableFinished) sent.destroy();
    };
    outgoing.once('close', onClientGone);
    sent.once('response', (answer) => {
      answered = answer;
      this.#passBack(answer, outgoing, requestId);
    });
    sent.on('error', (error) => {
      outgoing.off('close', onClientGone);
      if (outgoing.destroyed) {
        this.count('client-gone');
        return;
      }
      if (answered) {
        // After the whole answer it can only be the rest of the request that was not wanted.
        if (!answered.complete) this.#cut(outgoing, error);
        return;
      }
      const repeatable = !bodyBegun && performance.now() < retryUntil;
      if (repeatable && (isRefused(error) || sent.reusedSocket)) {
        const again = () => {
          if (outgoing.destroyed) this.count('client-gone');
          else this.#attempt(incoming, outgoing, requestId, retryUntil);
        };
        setTimeout(again, sent.reusedSocket ? 0 : retryPauseMs);
        return;
      }
      this.#refuse(incoming, outgoing, requestId, error, bodyBegun);
    });
    // An upgrade is not asked for: the header that would ask is not passed on.
    if (hasBody(incoming))
      onConnected(sent, () => {
        bodyBegun = true;
        incoming.pipe(sent);
        incoming.once('error', () => sent.destroy());
        // What the node no longer reads is not wanted; reading it lets the client see the answer.
        sent.once('close', () => incoming.resume());
      });
    else sent.end();
  }

  /** The request to the node; none of what HTTP/2 can carry and HTTP/1.1 cannot. */
  #request(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    requestId: string,
  ): ClientRequest | undefined {
    try {
      return request({
        socketPath: this.socketPath,
        method: incoming.method ?? 'GET',
        path: incoming.url ?? '/',
        headers: requestHeaders(incoming, requestId),
        agent: this.#agent,
      });
    } catch (error) {
      this.log.info({ err: error, requestId }, 'a request of the gateway cannot be passed on');
      sendJson(outgoing, 400, {
        error: 'bad_request',
        detail: 'Its path or a header holds a character that HTTP forbids.',
      });
      return undefined;
    }
  }

  #passBack(answer: IncomingMessage, outgoing: ServerResponse, requestId: string): void {
    if (outgoing.destroyed) {
      answer.destroy();
      this.count('client-gone');
      return;
    }
    const headers = withRequestId(answer.rawHeaders, requestId);
    outgoing.writeHead(answer.statusCode ?? 502, answer.statusMessage, headers);
    // A stream may send its first byte much later: the head must not wait for it.
    outgoing.flushHeaders();
    answer.once('end', () => {
      if (answer.rawTrailers.length > 0) outgoing.addTrailers(pairs(answer.rawTrailers));
      this.count('ok');
    });
    answer.once('error', (error) => this.#cut(outgoing, error));
    answer.pipe(outgoing);
  }

  /** The answer has begun: all we can do is break it off, so that nobody takes it for whole. */
  #cut(outgoing: ServerResponse, error: Error): void {
    if (outgoing.destroyed) return;
    this.count('broken');
    this.log.warn({ err: error }, 'the node broke off an answer of the gateway');
    outgoing.destroy();
  }

  /**
   * The node cannot be reached. In the forms that Prime's clients take for "try again"; but if it may
   * have begun with the request, in one after which no client runs a command a second time.
   */
  #refuse(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    requestId: string,
    error: Error,
    mayHaveBegun: boolean,
  ): void {
    this.count('unreachable');
    outgoing.setHeader(requestIdHeader, requestId);
    this.log.warn(
      { err: error, requestId, path: incoming.url?.split('?')[0] },
      'the node cannot be reached for the gateway',
    );
    const message = mayHaveBegun
      ? 'The connection to the node of this sandbox broke; the request may have been carried out.'
      : 'The node of this sandbox cannot be reached at the moment. Try again shortly.';
    const method = /\/command_session\.CommandSession\/(\w+)/.exec(incoming.url ?? '')?.[1];
    if (method && unrepeatable.has(method) && mayHaveBegun)
      sendStreamError(outgoing, incoming.headers['content-type'], 'aborted', message);
    else if (method) sendJson(outgoing, 503, { code: 'unavailable', message });
    else if (mayHaveBegun) sendJson(outgoing, 502, { error: 'node_connection_lost', detail: message });
    else sendJson(outgoing, 409, { error: 'node_unavailable', detail: message });
    // What the client still sends is not wanted; reading it lets it see the answer.
    incoming.resume();
  }
}

function sendJson(outgoing: ServerResponse, status: number, body: object): void {
  const text = JSON.stringify(body);
  outgoing.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  outgoing.end(text);
}

/**
 * A stream of the Connect protocol that ends with an error: flags, length, message
 * (connectrpc.com/docs/protocol, "Error end-stream"). Of a plain status, clients of a stream read no code.
 */
function sendStreamError(
  outgoing: ServerResponse,
  asked: string | undefined,
  code: string,
  message: string,
): void {
  const end = Buffer.from(JSON.stringify({ error: { code, message } }));
  const head = Buffer.alloc(5);
  head.writeUInt8(endStreamFlag, 0);
  head.writeUInt32BE(end.length, 1);
  // A client takes only an answer of the kind that it asked in; this message is JSON in both.
  const kind = /^application\/connect\+json\b/i.test(asked ?? '') ? 'json' : 'proto';
  outgoing.writeHead(200, { 'content-type': `application/connect+${kind}` });
  outgoing.end(Buffer.concat([head, end]));
}

function requestHeaders(incoming: IncomingMessage, requestId: string): string[] {
  const headers = withRequestId(incoming.rawHeaders, requestId);
  const lacks = (name: string) =>
    !headers.some((value, index) => index % 2 === 0 && value.toLowerCase() === name);
  // The name that HTTP/2 has for it.
  if (lacks('host')) headers.push('Host', String(incoming.headers[':authority'] ?? 'localhost'));
  if (hasBody(incoming) && lacks('content-length')) headers.push('Transfer-Encoding', 'chunked');
  return headers;
}

/** Headers to pass on, with our id in place of any other. */
function withRequestId(raw: readonly string[], requestId: string): string[] {
  const flat = endToEndHeaders(raw);
  const others = flat.filter((_, at) => flat[at - (at % 2)]?.toLowerCase() !== requestIdHeader);
  return [...others, 'X-Request-Id', requestId];
}

/** Calls back once the request has a connection: until then it may be tried again. */
function onConnected(sent: ClientRequest, begin: () => void): void {
  sent.once('socket', (socket) => {
    if (socket.connecting) socket.once('connect', begin);
    else begin();
  });
}

function isRefused(error: Error): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ECONNREFUSED' || code === 'ENOENT' || code === 'EAGAIN';
}

function pairs(flat: readonly string[]): [string, string][] {
  const result: [string, string][] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) result.push([flat[at] as string, flat[at + 1] as string]);
  return result;
}
