/**
 * The sockets of the DNS proxy: UDP and TCP on the instance's service address, with limits on what one
 * sandbox and all of them can have in flight. Owned by `dns-proxy-main.ts`.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { createServer, type Server, type Socket } from 'node:net';
import { type AnsweringParts, type Asked, answer } from './dns-answering.js';
import { frameTcp, TcpFrames } from './tcp-frames.js';

/** Limits of {@link DnsServer}. */
export const dnsLimits = {
  inFlight: 1_024,
  inFlightPerSource: 64,
  tcpConnections: 512,
  tcpConnectionsPerSource: 16,
  tcpIdleMs: 10_000,
} as const;

/** Listens, answers, closes. */
export class DnsServer {
  private readonly udp: UdpSocket = createSocket({ type: 'udp4', recvBufferSize: 1 << 20 });
  private readonly tcp: Server = createServer();
  private readonly connections = new Set<Socket>();
  private readonly connectionsOf = new Counter();
  private readonly inFlightOf = new Counter();

  /** Opens both sockets. Needs the right to bind ports below 1024; nothing is read before `serve`. */
  async listen(address: string, port: number): Promise<void> {
    this.tcp.maxConnections = dnsLimits.tcpConnections;
    await new Promise<void>((resolve, reject) => {
      this.tcp.once('error', reject);
      this.tcp.listen(port, address, resolve);
    });
    await new Promise<void>((resolve, reject) => {
      this.udp.once('error', reject);
      this.udp.bind(port, address, resolve);
    });
    this.udp.removeAllListeners('error');
    this.tcp.removeAllListeners('error');
  }

  /** Begins to answer. */
  serve(parts: AnsweringParts): void {
    // An error of one send (a guest that is gone) is not one of the socket.
    this.udp.on('error', () => {});
    this.tcp.on('error', () => {});
    this.udp.on('message', (message, from) => {
      const asked: Asked = { message, source: from.address, transport: 'udp' };
      // Over the limit: dropped, as a full queue of the kernel would; the guest's resolver asks again.
      void this.limited(asked, parts).then(
        (bytes) => bytes && this.udp.send(bytes, from.port, from.address, () => {}),
      );
    });
    this.tcp.on('connection', (socket) => this.serveConnection(socket, parts));
  }

  /** Ends everything. */
  close(): void {
    this.udp.close();
    this.tcp.close();
    for (const socket of this.connections) socket.destroy();
  }

  private serveConnection(socket: Socket, parts: AnsweringParts): void {
    const source = socket.remoteAddress ?? '';
    socket.on('error', () => socket.destroy());
    if (this.connectionsOf.get(source) >= dnsLimits.tcpConnectionsPerSource) {
      socket.destroy();
      return;
    }
    this.connections.add(socket);
    this.connectionsOf.add(source, 1);
    socket.on('close', () => {
      this.connections.delete(socket);
      this.connectionsOf.add(source, -1);
    });
    socket.setTimeout(dnsLimits.tcpIdleMs, () => socket.destroy());
    const frames = new TcpFrames();
    socket.on('data', (part) => {
      for (const message of frames.push(part)) {
        void this.limited({ message, source, transport: 'tcp' }, parts).then((bytes) => {
          if (!bytes) socket.destroy();
          else if (socket.writable) socket.write(frameTcp(bytes));
        });
      }
    });
  }

  private async limited(asked: Asked, parts: AnsweringParts): Promise<Buffer | undefined> {
    const { source } = asked;
    if (this.inFlightOf.total >= dnsLimits.inFlight) return undefined;
    if (this.inFlightOf.get(source) >= dnsLimits.inFlightPerSource) return undefined;
    this.inFlightOf.add(source, 1);
    try {
      return await answer(asked, parts);
    } finally {
      this.inFlightOf.add(source, -1);
    }
  }
}

/** Counts by key; keys at 0 are forgotten. */
class Counter {
  total = 0;
  private readonly counts = new Map<string, number>();

  get(key: string): number {
    return this.counts.get(key) ?? 0;
  }

  add(key: string, change: number): void {
    this.total += change;
    const count = this.get(key) + change;
    if (count === 0) this.counts.delete(key);
    else this.counts.set(key, count);
  }
}
