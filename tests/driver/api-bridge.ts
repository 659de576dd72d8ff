/**
 * Stands where the control plane would, for tests of a node agent alone: signs gateway tokens with the
 * test's own key, answers `auth` and `error-context`, and carries gateway traffic to the node's socket.
 * So the SDK talks to a node agent as it talks to a whole server. Used by `TestNode`.
 */
import { type KeyObject, sign } from 'node:crypto';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { ErrorContext, SandboxReport } from '@sandlot/protocol';

/** What the bridge asks its owner. */
export interface BridgeSource {
  socketPath: string;
  privateKey: KeyObject;
  report(sandboxId: string): Promise<SandboxReport | undefined>;
}

/** A listening bridge. */
export class ApiBridge {
  readonly #connections = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private readonly source: BridgeSource,
  ) {}

  /** Listens on a free port of the loopback. */
  static async open(source: BridgeSource): Promise<ApiBridge> {
    const server = createServer();
    const bridge = new ApiBridge(server, source);
    server.requestTimeout = 0;
    server.on('request', (incoming, outgoing) => void bridge.#serve(incoming, outgoing));
    server.on('connection', (socket) => {
      bridge.#connections.add(socket);
      socket.once('close', () => bridge.#connections.delete(socket));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return bridge;
  }

  /** Where the SDK finds it. */
  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** A token of the gateway; with `inView` an agent's. */
  token(sandboxId: string, generation: number, expiresInS = 3600, inView = false): string {
    const exp = Math.floor(Date.now() / 1000) + expiresInS;
    const claims = { sub: sandboxId, gen: generation, exp, ...(inView ? { view: true } : {}) };
    const signed = `v1.${Buffer.from(JSON.stringify(claims)).toString('base64url')}`;
    return `${signed}.${sign(null, Buffer.from(signed), this.source.privateKey).toString('base64url')}`;
  }

  /** Cuts every connection, as a lost network would. New ones are accepted. */
  cutConnections(): void {
    for (const socket of this.#connections) socket.destroy();
  }

  async close(): Promise<void> {
    this.cutConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const url = incoming.url ?? '';
    if (url.startsWith('/gw/')) return this.#forward(incoming, outgoing);
    incoming.resume();
    const [, id = '', route] = /^\/api\/v1\/sandbox\/([^/]+)\/(auth|error-context)$/.exec(url) ?? [];
    const report = await this.source.report(id).catch(() => undefined);
    const send = (status: number, body: unknown) => {
      outgoing.writeHead(status, { 'content-type': 'application/json' });
      outgoing.end(JSON.stringify(body));
    };
    if (!route)
      return send(404, { detail: `the bridge has no ${url}`, code: 'NOT_FOUND', errors: [], request_id: '' });
    if (route === 'error-context') return send(200, contextOf(report));
    send(200, {
      token: this.token(id, report?.generation ?? 1),
      gateway_url: `${this.url}/gw`,
      user_ns: 'test',
      job_id: id,
      expires_at: new Date(Date.now() + 3_600_000).toISOString(),
      is_vm: true,
    });
  }

  #forward(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const sent = request({
      socketPath: this.source.socketPath,
      method: incoming.method,
      path: incoming.url,
      headers: incoming.headers,
      agent: false,
    });
    // Either side's loss is the other's: a client that goes away must be seen by the node.
    outgoing.once('close', () => sent.destroy());
    sent.on('error', () => outgoing.destroy());
    sent.on('response', (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      outgoing.flushHeaders();
      answer.on('error', () => outgoing.destroy());
      answer.on('aborted', () => outgoing.destroy());
      answer.pipe(outgoing);
    });
    incoming.on('error', () => sent.destroy());
    // A node that answers early (a full disk) reads no further: what the client still sends must not
    // stay on a connection that it uses again.
    sent.once('close', () => {
      incoming.unpipe(sent);
      incoming.resume();
    });
    incoming.pipe(sent);
  }
}

function contextOf(report: SandboxReport | undefined): ErrorContext {
  const status =
    report?.state === 'running' ? 'RUNNING' : report?.state === 'failed' || !report ? 'ERROR' : 'TERMINATED';
  return { status, errorType: report?.reason ?? null, errorMessage: report?.message ?? null };
}
