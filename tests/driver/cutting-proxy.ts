/**
 * A network that fails, for tests: a unix socket whose connections go on to a server, until they are cut.
 * Used by tests of sessions through `new Sandlot({ url: proxy.url })`.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A listening proxy. */
export class CuttingProxy {
  readonly #connections = new Set<{ client: net.Socket; server: net.Socket; swallows: boolean }>();
  /** Bytes of the server that were on their way when a connection was cut. */
  lostBytes = 0;
  cuts = 0;

  private constructor(
    private readonly folder: string,
    private readonly listener: net.Server,
  ) {}

  /** Goes to the server of this URL. */
  static async open(target: string): Promise<CuttingProxy> {
    const { hostname, port } = new URL(target);
    const folder = await mkdtemp(join(tmpdir(), 'sandlot-proxy-'));
    const listener = net.createServer();
    const proxy = new CuttingProxy(folder, listener);
    listener.on('connection', (client) => proxy.#carry(client, net.connect(Number(port), hostname)));
    await new Promise<void>((resolve) => listener.listen(join(folder, 'socket'), resolve));
    return proxy;
  }

  /** For the SDK. */
  get url(): string {
    return `unix:${join(this.folder, 'socket')}`;
  }

  /**
   * Loses every connection: what the servers send from now on goes nowhere, although they believe that it
   * was sent; after `afterMs` both sides see the end.
   */
  cut(afterMs: number): void {
    const lost = [...this.#connections];
    if (lost.length > 0) this.cuts += 1;
    for (const connection of lost) connection.swallows = true;
    setTimeout(() => {
      for (const { client, server } of lost) {
        client.destroy();
        server.destroy();
      }
    }, afterMs);
  }

  async close(): Promise<void> {
    this.cut(0);
    await new Promise((resolve) => this.listener.close(resolve));
    await rm(this.folder, { recursive: true });
  }

  #carry(client: net.Socket, server: net.Socket): void {
    const connection = { client, server, swallows: false };
    this.#connections.add(connection);
    client.pipe(server);
    server.on('data', (chunk) => {
      if (connection.swallows) this.lostBytes += chunk.length;
      else if (!client.write(chunk)) {
        server.pause();
        client.once('drain', () => server.resume());
      }
    });
    server.on('end', () => client.end());
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => {
        other.destroy();
        this.#connections.delete(connection);
      });
    }
  }
}
