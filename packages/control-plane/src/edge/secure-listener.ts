/**
 * The listener with TLS: HTTP/2 and HTTP/1.1 on one port, as the client chooses by ALPN. HTTP/1.1 is an
 * ordinary server with the ordinary limits; connections that chose `h2` are handed to a second one that does
 * not listen itself. A flood of resets is stopped by Node's own HTTP/2 library, which closes a connection with
 * more than 1,000 at once or 33 a second. Made by `front-server.ts`.
 */
import type { RequestListener } from 'node:http';
import {
  createServer as createHttp2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from 'node:http2';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { TLSSocket } from 'node:tls';
import type { Certificate } from './certificate.js';
import { FrontRequest, FrontResponse } from './http2-messages.js';

/** Limits that both kinds of listener share. */
export interface ListenerLimits {
  headersTimeoutMs: number;
  keepAliveTimeoutMs: number;
}

/** Calls at once on one connection. Prime's clients open another one above 90. */
const maxConcurrentStreams = 256;
/** What a client may send of one call before we have read it: what a stalled one costs. */
const streamWindowBytes = 256 * 1024;
/** The same for all calls of a connection; we take in all of it, so this only bounds what is under way. */
const connectionWindowBytes = 4 * 1024 * 1024;
/** Largest head of a request, as of HTTP/1.1. */
const maxHeadBytes = 16 * 1024;
/** Clients keep HTTP/2 connections longer than others (Prime's 90 s), and we are not to be the side that closes them. */
const idleFactor = 2;
/** A connection that we have ended is dropped after this. */
const goodbyeMs = 5_000;
/** Node's count of what it holds for one connection, MB: a chunk on its way out for each call must fit. */
const maxSessionMegabytes = 64;

/** The public listener with TLS. */
export class SecureListener {
  readonly server: HttpsServer;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #limits: ListenerLimits;

  constructor(listener: RequestListener, certificate: Certificate, limits: ListenerLimits) {
    this.#limits = limits;
    const http2 = createHttp2Server(
      {
        settings: {
          maxConcurrentStreams,
          initialWindowSize: streamWindowBytes,
          maxHeaderListSize: maxHeadBytes,
        },
        maxSessionMemory: maxSessionMegabytes,
        Http2ServerRequest: FrontRequest,
        Http2ServerResponse: FrontResponse,
      },
      listener as unknown as (request: Http2ServerRequest, response: Http2ServerResponse) => void,
    );
    this.server = createHttpsServer(
      {
        ...certificate,
        ALPNProtocols: ['h2', 'http/1.1'],
        handshakeTimeout: limits.headersTimeoutMs,
        keepAliveTimeout: limits.keepAliveTimeoutMs,
        requestTimeout: 0,
      },
      listener,
    );
    this.server.headersTimeout = limits.headersTimeoutMs;
    this.server.timeout = 0;
    const http1 = this.server.listeners('secureConnection') as ((socket: TLSSocket) => void)[];
    this.server.removeAllListeners('secureConnection');
    this.server.on('secureConnection', (socket) => {
      if (socket.alpnProtocol !== 'h2') {
        for (const take of http1) take.call(this.server, socket);
        return;
      }
      // Made by the call below, before it returns.
      const keep = (session: ServerHttp2Session) => this.#keep(session, socket);
      http2.once('session', keep);
      http2.emit('connection', socket);
      http2.off('session', keep);
    });
  }

  /** Takes a renewed certificate for connections made from now on. */
  renew(certificate: Certificate): void {
    this.server.setSecureContext({ ...certificate });
  }

  /** Tells HTTP/2 clients to go elsewhere; calls at work go on. */
  closeIdleConnections(): void {
    for (const session of this.#sessions) session.close();
  }

  #keep(session: ServerHttp2Session, socket: TLSSocket): void {
    this.#sessions.add(session);
    session.setLocalWindowSize(connectionWindowBytes);
    let calls = 0;
    // Covers what comes before a first request, too: a client that sends its preface or a head too slowly.
    const closeLater = () =>
      setTimeout(() => session.close(), idleFactor * this.#limits.keepAliveTimeoutMs).unref();
    let idle = closeLater();
    session.on('stream', (stream) => {
      clearTimeout(idle);
      calls++;
      stream.once('close', () => {
        calls--;
        clearTimeout(idle);
        if (calls === 0 && !session.closed) idle = closeLater();
      });
    });
    // One client's broken connection is no event for us.
    session.on('error', () => undefined);
    session.once('close', () => {
      clearTimeout(idle);
      this.#sessions.delete(session);
      // Node only says goodbye, and waits for the client to do so.
      setTimeout(() => socket.destroy(), goodbyeMs).unref();
    });
  }
}
