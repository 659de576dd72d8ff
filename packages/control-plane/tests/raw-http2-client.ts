/**
 * As much of an HTTP/2 client as a test needs to break rules with: Node's own ends a body before it resets
 * the stream, and ends a connection in good order. One POST, by hand-made frames (RFC 9113).
 */
import { connect, type TLSSocket } from 'node:tls';

const preface = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const types = { data: 0, headers: 1, reset: 3, settings: 4 };
const endHeaders = 0x4;

/** A connection with one stream. */
export class RawHttp2Client {
  private constructor(private readonly socket: TLSSocket) {}

  /** Connects and sends the preface. */
  static async open(port: number, ca: string): Promise<RawHttp2Client> {
    const socket = connect({ host: '127.0.0.1', port, ca, ALPNProtocols: ['h2'] });
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    socket.write(preface);
    socket.write(frame(types.settings, 0, 0, Buffer.alloc(0)));
    return new RawHttp2Client(socket);
  }

  /** Calls back when the server has sent anything. */
  onBytes(listener: () => void): void {
    this.socket.once('data', listener);
  }

  /** Sends a head and the first part of a body. */
  beginPost(path: string, part: string): void {
    const head = [
      [':method', 'POST'],
      [':scheme', 'https'],
      [':authority', 'localhost'],
      [':path', path],
    ].map(([name = '', value = '']) => Buffer.concat([Buffer.from([0]), literal(name), literal(value)]));
    this.socket.write(frame(types.headers, endHeaders, 1, Buffer.concat(head)));
    this.socket.write(frame(types.data, 0, 1, Buffer.from(part)));
  }

  /** Resets the stream, and does nothing else. */
  reset(code: number): void {
    const payload = Buffer.alloc(4);
    payload.writeUInt32BE(code);
    this.socket.write(frame(types.reset, 0, 1, payload));
  }

  /** Resolves when the server has closed the connection. */
  closed(): Promise<void> {
    this.socket.resume();
    return new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  /** Drops the connection. */
  close(): void {
    this.socket.destroy();
  }
}

function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A short string of HPACK, uncompressed (RFC 7541, section 5.2). */
function literal(text: string): Buffer {
  if (text.length > 126) throw new Error('only short strings are written here');
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text)]);
}
