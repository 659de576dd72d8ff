/** A small HTTP server for one test: answers by a function, remembers what was asked, closes with everything open. */
import http from 'node:http';
import type { AddressInfo } from 'node:net';

/** What a request was. */
export interface SeenRequest {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: http.IncomingHttpHeaders;
  body: string;
}

/** An answer: status and JSON, or a function that writes it. */
export type Answer =
  | { status?: number; headers?: Record<string, string>; json?: unknown; text?: string }
  | ((response: http.ServerResponse) => void);

/** A listening server. */
export class TestServer {
  readonly seen: SeenRequest[] = [];
  readonly url: string;

  private constructor(private readonly server: http.Server) {
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  /** Listens; `answer` is called once a request has been read whole. */
  static async open(answer: (request: SeenRequest, count: number) => Answer): Promise<TestServer> {
    let self: TestServer | undefined;
    const server = http.createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const url = new URL(request.url ?? '', 'http://test');
        const seen: SeenRequest = {
          method: request.method ?? '',
          path: url.pathname,
          query: url.searchParams,
          headers: request.headers,
          body: Buffer.concat(chunks).toString(),
        };
        self?.seen.push(seen);
        const reply = answer(seen, self?.seen.length ?? 0);
        if (typeof reply === 'function') reply(response);
        else {
          response.writeHead(reply.status ?? 200, { 'content-type': 'application/json', ...reply.headers });
          response.end(reply.text ?? JSON.stringify(reply.json ?? {}));
        }
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    self = new TestServer(server);
    return self;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
