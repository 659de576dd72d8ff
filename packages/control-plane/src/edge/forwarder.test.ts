/** Idle connections to the node: the control plane closes them first, so that no command meets one that is being closed. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Forwarder } from './forwarder.js';

const keepIdleMs = 150;
let folder: string;
let node: Server;
let edge: Server;
let forwarder: Forwarder;
let connections: number;
let answer: RequestListener;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'slt-forwarder-'));
  const socketPath = path.join(folder, 'node.sock');
  connections = 0;
  node = createServer((request, response) => answer(request, response));
  node.on('connection', (socket) => {
    connections++;
    socket.once('close', () => connections--);
  });
  await new Promise<void>((resolve) => node.listen(socketPath, resolve));
  forwarder = new Forwarder(socketPath, pino({ level: 'silent' }), () => undefined, keepIdleMs);
  edge = createServer((incoming, outgoing) => forwarder.forward(incoming, outgoing));
  await new Promise<void>((resolve) => edge.listen(0, '127.0.0.1', resolve));
});

afterEach(() => {
  forwarder.close();
  for (const server of [node, edge]) {
    server.closeAllConnections();
    server.close();
  }
  rmSync(folder, { recursive: true });
});

const ask = () => fetch(`http://127.0.0.1:${(edge.address() as AddressInfo).port}/gw/x/y/exec`);

it('are closed by the control plane, long before the node would', async () => {
  answer = (_request, response) => response.end('ok');
  expect(await (await ask()).text()).toBe('ok');
  expect(connections).toBe(1);
  await expect.poll(() => connections, { timeout: 3_000 }).toBe(0);
});

it('of a quiet stream are not idle', async () => {
  answer = async (_request, response) => {
    response.write('begun ');
    await pause(keepIdleMs * 5);
    response.end('ended');
  };
  expect(await (await ask()).text()).toBe('begun ended');
});
