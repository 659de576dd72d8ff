import { mkdtempSync, rmSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { GuestChannel, GuestUnreachableError } from './channel.js';

/** A guest agent as far as the channel sees it: answers RESET by SYNC and HTTP/2. */
class SocketGuest {
  readonly folder = mkdtempSync(join(tmpdir(), 'sandlot-channel-'));
  readonly ports = { ctl: join(this.folder, 'ctl'), data: join(this.folder, 'data') };
  readonly #servers: net.Server[] = [];
  readonly #sockets = new Set<net.Socket>();
  #data: net.Socket | undefined;

  async open(): Promise<void> {
    const http = http2.createServer((_, answer) => answer.end('{}'));
    http.on('sessionError', () => {});
    await this.#listen(this.ports.data, (socket) => {
      this.#data = socket;
    });
    await this.#listen(this.ports.ctl, (socket) => {
      socket.setEncoding('utf8').on('data', (text: string) => {
        this.#data?.write(`stale bytes SYNC ${/RESET (\w+)/.exec(text)?.[1]}\n`);
        http.emit('connection', this.#data);
      });
    });
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(this.#servers.map((server) => new Promise((resolve) => server.close(resolve))));
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #listen(path: string, accept: (socket: net.Socket) => void): Promise<void> {
    const server = net.createServer((socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      accept(socket);
    });
    this.#servers.push(server);
    await new Promise<void>((resolve) => server.listen(path, resolve));
  }
}

let guest: SocketGuest;

beforeEach(async () => {
  guest = new SocketGuest();
  await guest.open();
});
afterEach(() => guest.close());

it('skips what was sent before its own SYNC', async () => {
  const channel = new GuestChannel(guest.ports);
  expect((await channel.session(5_000)).destroyed).toBe(false);
  expect(channel.skippedBytes).toBe('stale bytes '.length);
  channel.close();
});

it('closed while it connects, refuses whoever waits, at once', async () => {
  const channel = new GuestChannel(guest.ports);
  const waiting = channel.session(60_000);
  channel.close();
  await expect(waiting).rejects.toBeInstanceOf(GuestUnreachableError);
}, 5_000);

it('closed as it is connected, throws nothing behind its callers’ back', async () => {
  const channel = new GuestChannel(guest.ports);
  // vitest fails the run for an error that nobody catches.
  const session = await channel.session(5_000);
  channel.close();
  session.emit('connect', session, session.socket);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(session.destroyed).toBe(true);
});
