/** A server with the auth route and the Connect service, whose commands are played by the test. */
import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  CommandSession,
  type CommandSessionEvent,
  CommandSessionEventSchema,
  type SendInputRequest,
  type SendSignalRequest,
  type StartRequest,
  type UpdateRequest,
} from '@sandlot/protocol';

/** Events of a command. */
export type Play = (request: StartRequest, context: HandlerContext) => AsyncGenerator<CommandSessionEvent>;

/** The events as short words. */
export const event = {
  start: (pid = 7) => create(CommandSessionEventSchema, { event: { case: 'start', value: { pid } } }),
  stdout: (text: string | Uint8Array) => data('stdout', text),
  stderr: (text: string | Uint8Array) => data('stderr', text),
  pty: (text: string | Uint8Array) => data('pty', text),
  end: (exitCode = 0, more: { signal?: number; oomKilled?: boolean } = {}) =>
    create(CommandSessionEventSchema, {
      event: { case: 'end', value: { exitCode, exited: !more.signal, status: '', ...more } },
    }),
};

function data(kind: 'stdout' | 'stderr' | 'pty', text: string | Uint8Array) {
  const value = typeof text === 'string' ? new TextEncoder().encode(text) : text;
  return create(CommandSessionEventSchema, {
    event: { case: 'data', value: { output: { case: kind, value } } },
  });
}

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
  readonly starts: StartRequest[] = [];
  readonly inputs: SendInputRequest[] = [];
  readonly signals: SendSignalRequest[] = [];
  readonly updates: UpdateRequest[] = [];
  readonly timeouts: (string | null)[] = [];
  auths = 0;
  gatewayCalls = 0;
  attaches = 0;
  url = '';
  readonly #server: http.Server;
  readonly #sockets = new Set<Socket>();
  readonly #forgotten = new WeakSet<Socket>();

  private constructor(options: ExecServerOptions) {
    const self = this;
    const service = connectNodeAdapter({
      requestPathPrefix: '/gw/u/sb1',
      routes: (router) =>
        router.service(CommandSession, {
          async *start(request, context) {
            self.starts.push(request);
            self.timeouts.push(context.requestHeader.get('connect-timeout-ms'));
            for await (const one of options.start(request, context)) yield { event: one };
          },
          async *connect(_request, context) {
            self.attaches++;
            if (options.attach) for await (const one of options.attach(context)) yield { event: one };
          },
          async sendInput(request) {
            self.inputs.push(request);
            return {};
          },
          async sendSignal(request) {
            self.signals.push(request);
            return {};
          },
          async update(request) {
            self.updates.push(request);
            return {};
          },
        }),
    });
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
      } else {
        this.gatewayCalls++;
        const status = options.refuse?.(this.gatewayCalls);
        if (status !== undefined) answer(status, { code: 'x', message: 'refused', detail: 'refused' });
        else service(request, response);
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

  /** Forgets every connection, as a restarted gateway between the two does: whatever comes on one is answered by a reset. */
  forget(): void {
    for (const socket of this.#sockets) this.#forgotten.add(socket);
  }

  /** Cuts every connection, as a lost network does. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Resolves once the condition holds; fails after two seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 2_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('the condition did not come true');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
