/** Holds the QMP client against a scripted peer: order, errors, deadlines, closing, events. */
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { QmpClient, QmpCommandError, QmpConnectionError, type QmpEvent } from './qmp-client.js';

type Script = (command: { execute: string; id: number }, socket: net.Socket) => void;

describe('QmpClient', () => {
  let folder: string;
  let path: string;
  let server: net.Server | undefined;
  const sockets = new Set<net.Socket>();
  let client: QmpClient | undefined;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'sandlot-qmp-'));
    path = join(folder, 'qmp.sock');
  });
  afterEach(async () => {
    client?.close();
    client = undefined;
    for (const socket of sockets) socket.destroy();
    sockets.clear();
    await new Promise<void>((resolve) => (server ? server.close(() => resolve()) : resolve()));
    server = undefined;
    rmSync(folder, { recursive: true, force: true });
  });

  function serve(
    script: Script,
    greeting = '{"QMP": {"version": {}, "capabilities": []}}\r\n',
  ): Promise<void> {
    server = net.createServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.write(greeting);
      let text = '';
      socket.on('data', (chunk) => {
        text += chunk.toString();
        for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
          const command = JSON.parse(text.slice(0, end)) as { execute: string; id: number };
          text = text.slice(end + 1);
          if (command.execute === 'qmp_capabilities') answer(socket, command.id, {});
          else script(command, socket);
        }
      });
    });
    return new Promise((resolve) => server!.listen(path, resolve));
  }
  const answer = (socket: net.Socket, id: number, value: unknown): void => {
    socket.write(`${JSON.stringify({ return: value, id })}\r\n`);
  };

  it('waits until QEMU listens, then runs commands', async () => {
    setTimeout(() => void serve(({ id, execute }, socket) => answer(socket, id, { was: execute })), 50);
    client = await QmpClient.connect(path, 5000);
    expect(await client.execute('query-status')).toEqual({ was: 'query-status' });
  });

  it('gives each command its own answer, whatever their order', async () => {
    const waiting: [net.Socket, number, string][] = [];
    await serve(({ id, execute }, socket) => {
      waiting.push([socket, id, execute]);
      if (waiting.length === 3) for (const [to, of, what] of waiting.reverse()) answer(to, of, what);
    });
    client = await QmpClient.connect(path, 5000);
    const answers = await Promise.all(['a', 'b', 'c'].map((name) => client!.execute(name)));
    expect(answers).toEqual(['a', 'b', 'c']);
  });

  it('tells a refusal from a lost connection', async () => {
    await serve(({ id, execute }, socket) => {
      if (execute === 'die') socket.destroy();
      else
        socket.write(`${JSON.stringify({ error: { class: 'GenericError', desc: 'no such disk' }, id })}\n`);
    });
    client = await QmpClient.connect(path, 5000);
    const refused: unknown = await client.execute('block_resize').catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(QmpCommandError);
    expect(refused).toMatchObject({ command: 'block_resize', description: 'no such disk' });
    await expect(client.execute('die')).rejects.toBeInstanceOf(QmpConnectionError);
    await client.closed;
    await expect(client.execute('later')).rejects.toThrow(/'later' was not sent/);
  });

  it('does not wait for ever for an answer', async () => {
    await serve(() => {});
    client = await QmpClient.connect(path, 5000);
    await expect(client.execute('stop', undefined, 30)).rejects.toThrow(/did not answer 'stop' within 30 ms/);
  });

  it('gives up where nobody listens, and on abort', async () => {
    await expect(QmpClient.connect(path, 50)).rejects.toBeInstanceOf(QmpConnectionError);
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error('enough')), 20);
    await expect(QmpClient.connect(path, 5000, controller.signal)).rejects.toThrow('enough');
  });

  it('gives up on a peer that never greets', async () => {
    await serve(() => {}, '');
    await expect(QmpClient.connect(path, 50)).rejects.toThrow(/no greeting/);
  });

  it('delivers events, also those before the first listener', async () => {
    await serve(({ id }, socket) => {
      socket.write('{"event": "STOP", "timestamp": {}}\n');
      answer(socket, id, {});
      socket.write('{"event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}\n');
    });
    client = await QmpClient.connect(path, 5000);
    await client.execute('x');
    const seen: QmpEvent[] = [];
    await new Promise<void>((resolve) => {
      client!.onEvent((event) => {
        seen.push(event);
        if (event.event === 'SHUTDOWN') resolve();
      });
    });
    expect(seen).toEqual([
      { event: 'STOP', data: {} },
      { event: 'SHUTDOWN', data: { guest: true, reason: 'guest-reset' } },
    ]);
  });

  it('closes on what is not QMP', async () => {
    await serve((_command, socket) => socket.write('hello\n'));
    client = await QmpClient.connect(path, 5000);
    await expect(client.execute('x')).rejects.toThrow(/what is not QMP/);
  });
});
