/**
 * The listeners: the public one, with or without TLS, and the admin socket. Each request goes to the
 * gateway's forwarder or to the API. HTTP/2 is spoken only with TLS: see `secure-listener.ts`.
 */
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { serverKeepsIdleMs } from '@sandlot/protocol';
import type { Certificate } from './certificate.js';
import { hasBody } from './http2-messages.js';
import { SecureListener } from './secure-listener.js';

/** Where requests go. */
export interface FrontTargets {
  api: RequestListener;
  gateway: RequestListener;
}

/** A client has this long to send the head of a request. */
const headersTimeoutMs = 60_000;
/** A client has this long to send the body of an API request. Uploads have no such limit. */
const defaultBodyTimeoutMs = 60_000;

/** Paths whose bodies are streams of any length. */
const streamedPaths = ['/gw/', '/api/v1/images/local:import'];

/** Both listeners. */
export class FrontServer {
  readonly #public: Server | HttpsServer;
  readonly #secure: SecureListener | undefined;
  readonly #admin: Server;
  readonly #adminSockets = new WeakSet<Socket>();
  readonly #open = new Set<Socket>();
  #adminPath: string | undefined;

  constructor(targets: FrontTargets, certificate?: Certificate, bodyTimeoutMs = defaultBodyTimeoutMs) {
    const listener: RequestListener = (incoming, outgoing) => {
      const url = incoming.url ?? '/';
      limitBodyTime(incoming, url, bodyTimeoutMs);
      if (url.startsWith('/gw/')) targets.gateway(incoming, outgoing);
      else targets.api(incoming, outgoing);
    };
    this.#secure =
      certificate &&
      new SecureListener(listener, certificate, { headersTimeoutMs, keepAliveTimeoutMs: serverKeepsIdleMs });
    this.#public = this.#secure?.server ?? createListener(listener);
    this.#admin = createListener(listener);
    this.#admin.on('connection', (socket) => this.#adminSockets.add(socket));
    for (const server of [this.#public, this.#admin])
      server.on('connection', (socket) => {
        this.#open.add(socket);
        socket.once('close', () => this.#open.delete(socket));
      });
  }

  /** Takes a renewed certificate; connections that are open keep the old one. */
  renewCertificate(certificate: Certificate): void {
    this.#secure?.renew(certificate);
  }

  /** True for requests that came through the admin socket. */
  isLocalAdmin(request: IncomingMessage): boolean {
    return this.#adminSockets.has(request.socket);
  }

  /** Listens for everybody; resolves with the address. */
  async listen(host: string, port: number): Promise<AddressInfo> {
    await listening(this.#public, () => this.#public.listen({ host, port, backlog: 4096 }));
    return this.#public.address() as AddressInfo;
  }

  /** Listens on a socket that only its owner can open. */
  async listenAdmin(path: string): Promise<void> {
    // Of a process that was killed. Two of ours never share a data folder: the caller holds its lock.
    rmSync(path, { force: true });
    const before = process.umask(0o177);
    try {
      await listening(this.#admin, () => this.#admin.listen(path));
    } finally {
      process.umask(before);
    }
    chmodSync(path, 0o600);
    this.#adminPath = path;
  }

  /** Takes no more requests; those at work have `graceMs` to end. */
  async close(graceMs: number): Promise<void> {
    const servers = [this.#public, this.#admin].filter((server) => server.listening);
    const closed = Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    for (const server of servers) server.closeIdleConnections();
    this.#secure?.closeIdleConnections();
    const timer = setTimeout(() => {
      for (const socket of this.#open) socket.destroy();
    }, graceMs);
    await closed;
    clearTimeout(timer);
    if (this.#adminPath !== undefined) rmSync(this.#adminPath, { force: true });
  }
}

/** A server with our limits that does not listen yet. */
function createListener(listener: RequestListener): Server {
  const server = createServer({ keepAliveTimeout: serverKeepsIdleMs, requestTimeout: 0 }, listener);
  server.headersTimeout = headersTimeoutMs;
  server.timeout = 0;
  return server;
}

/** Node's own limit is for all requests or none, and an upload may take hours. */
function limitBodyTime(incoming: IncomingMessage, url: string, bodyTimeoutMs: number): void {
  if (streamedPaths.some((path) => url.startsWith(path))) return;
  if (!hasBody(incoming)) return;
  const timer = setTimeout(() => incoming.destroy(new Error('the body took too long')), bodyTimeoutMs);
  timer.unref();
  incoming.once('end', () => clearTimeout(timer));
  incoming.once('close', () => clearTimeout(timer));
}

function listening(server: Server | HttpsServer, listen: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.once('listening', () => {
      server.off('error', reject);
      resolve();
    });
    listen();
  });
}
