/** A server with the auth route and the Connect service, whose connections fail as the test wants. */
import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { HandlerContext } from '@connectrpc/connect';
import type { CommandSessionEvent } from '@sandlot/protocol';
import { type Sandbox, Sandlot } from '../src/index.js';
import { CommandService, type Play } from './command-service.js';

/** What the test decides. */
export interface ExecServerOptions {
  start: Play;
  attach?: (context: HandlerContext) => AsyncGenerator<CommandSessionEvent>;
  /** Status for a gateway call instead of the service; undefined lets it through. */
  refuse?: (count: number) => number | undefined;
  /** Answer of error-context. */
  status?: () => { status: string; errorType: string | null; errorMessage: string | null };
}

/** The server, and what it has seen. */
export class ExecServer {
  readonly commands = new CommandService('/gw/u/sb1');
  auths = 0;
  gatewayCalls = 0;
  /** What clients confirmed. */
  readonly confirmations: URLSearchParams[] = [];
  url = '';
  #client: Sandlot | undefined;
  readonly #server: http.Server;
  readonly #sockets = new Set<Socket>();
  readonly #forgotten = new WeakSet<Socket>();

  private constructor(options: ExecServerOptions) {
    this.commands.play = options.start;
    if (options.attach) this.commands.attach = options.attach;
    this.#server = http.createServer((request, response) => {
      if (this.#forgotten.has(request.socket)) {
        request.socket.resetAndDestroy();
        return;
      }
      const answer = (status: number, body: unknown) => {
        request.resume();
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(body));
      };
      const path = request.url ?? '';
      if (path.endsWith('/auth')) {
        this.auths++;
        const expires = new Date(Date.now() + 3_600_000).toISOString();
        answer(200, {
          token: `token-${this.auths}`,
          gateway_url: `${this.url}/gw`,
          user_ns: 'u',
          job_id: 'sb1',
          expires_at: expires,
        });
      } else if (path.endsWith('/error-context')) {
        answer(200, options.status?.() ?? { status: 'RUNNING', errorType: null, errorMessage: null });
      } else if (path.includes('/received?')) {
        this.confirmations.push(new URL(path, this.url).searchParams);
        answer(200, {});
      } else {
        this.gatewayCalls++;
        const status = options.refuse?.(this.gatewayCalls);
        if (status !== undefined) answer(status, { code: 'x', message: 'refused', detail: 'refused' });
        else this.commands.handle(request, response);
      }
    });
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  /** Listens. */
  static async open(options: ExecServerOptions): Promise<ExecServer> {
    const self = new ExecServer(options);
    await new Promise<void>((resolve) => self.#server.listen(0, '127.0.0.1', resolve));
    self.url = `http://127.0.0.1:${(self.#server.address() as AddressInfo).port}`;
    return self;
  }

  /** The one sandbox, of a client that ends with the server. */
  get sandbox(): Sandbox {
    this.#client ??= new Sandlot({ url: this.url, apiKey: 'k' });
    return this.#client.sandboxes.handle('sb1');
  }

  /** Forgets every connection, as a restarted gateway between the two does: whatever comes on one is answered by a reset. */
  forget(): void {
    for (const socket of this.#sockets) this.#forgotten.add(socket);
  }

  /** Cuts every connection, as a lost network does. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.#client?.close();
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
