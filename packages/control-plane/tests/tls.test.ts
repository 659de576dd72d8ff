/** The listener with TLS: HTTP/2 and HTTP/1.1 on one port, through the gateway and the API. */
import { randomBytes } from 'node:crypto';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { LargeAnswer } from './fake-node.js';
import { RawHttp2Client } from './raw-http2-client.js';
import { TestAuthority } from './test-authority.js';
import { send, World } from './world.js';

const folder = mkdtempSync(join(tmpdir(), 'sandlot-tls-'));
const authority = new TestAuthority(folder);
const ca = authority.pem;
const files = authority.issue('server', 'DNS:localhost,IP:127.0.0.1');
const renewed = authority.issue('renewed', 'DNS:localhost,IP:127.0.0.1');

let world: World;
const sessions = new Set<ClientHttp2Session>();
beforeAll(async () => {
  world = await new World({ tls: { ...files }, trustedProxies: ['127.0.0.2'] }).open();
});
afterAll(async () => {
  for (const session of sessions) session.destroy();
  await world.close();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  world.node.gateway = (_request, response) => response.end('ok');
});

function open(options: object = {}): ClientHttp2Session {
  const session = connect(world.address, { ca, ...options });
  session.on('error', () => undefined);
  session.once('close', () => sessions.delete(session));
  sessions.add(session);
  return session;
}

interface H2Answer {
  status: number;
  headers: Record<string, unknown>;
  text: string;
  trailers: Record<string, unknown> | undefined;
}

/** Reads an answer to its end; fails when it is broken off. */
async function finish(stream: ClientHttp2Stream): Promise<H2Answer> {
  let headers: Record<string, unknown> = {};
  let trailers: Record<string, unknown> | undefined;
  stream.once('response', (value) => {
    headers = value;
  });
  stream.once('trailers', (value) => {
    trailers = value;
  });
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  await new Promise<void>((resolve, reject) => {
    stream.once('end', resolve);
    stream.once('error', reject);
  });
  return { status: Number(headers[':status']), headers, text: Buffer.concat(chunks).toString(), trailers };
}

function api(
  session: ClientHttp2Session,
  method: string,
  path: string,
  body?: unknown,
  headers: object = {},
) {
  const stream = session.request({
    ':method': method,
    ':path': `/api/v1${path}`,
    authorization: `Bearer ${world.key}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...headers,
  });
  stream.end(body === undefined ? undefined : JSON.stringify(body));
  return finish(stream);
}

/** Begins a call of the gateway over HTTP/2; what the node sees of it comes as promises. */
function begin(session: ClientHttp2Session, path: string, headers: object = {}) {
  const seen = promised<IncomingMessage>();
  const response = promised<ServerResponse>();
  world.node.gateway = (incoming, outgoing) => {
    seen.resolve(incoming);
    response.resolve(outgoing);
  };
  const sent = session.request({ ':method': 'POST', ':path': path, ...headers });
  sent.on('error', () => undefined);
  return { sent, seen: seen.promise, response: response.promise };
}

it('lets the client choose HTTP/2 or HTTP/1.1, on one port, and speaks no plain HTTP there', async () => {
  const { port } = new URL(world.address);
  expect(world.address).toBe(`https://127.0.0.1:${port}`);
  for (const [offered, chosen] of [
    [['h2', 'http/1.1'], 'h2'],
    [['http/1.1'], 'http/1.1'],
    [undefined, false],
  ] as const) {
    const socket = connectTls({
      host: '127.0.0.1',
      port: Number(port),
      ca,
      ...(offered ? { ALPNProtocols: [...offered] } : {}),
    });
    await once(socket, 'secureConnect');
    expect(socket.alpnProtocol).toBe(chosen);
    socket.destroy();
  }
  await expect(send(world.address.replace('https:', 'http:'), 'GET', {})).rejects.toThrow();
  // The admin socket stays as it is.
  expect((await world.admin('GET', '/status')).status).toBe(200);
});

it('serves the API over both: create, read, list, delete, errors; URLs in answers are https', async () => {
  const session = open();
  const created = await api(session, 'POST', '/sandbox?wait=10', {
    name: 'h2',
    docker_image: 'python:3.11-slim',
  });
  expect(created.status, created.text).toBe(201);
  const { id, gatewayAuth } = JSON.parse(created.text) as {
    id: string;
    gatewayAuth: { gateway_url: string };
  };
  expect(gatewayAuth.gateway_url).toBe(`${world.address}/gw`);
  const again = await api(session, 'POST', `/sandbox/${id}/auth`, undefined, { ':authority': 'localhost:1' });
  expect(JSON.parse(again.text)).toMatchObject({ gateway_url: 'https://localhost:1/gw' });
  expect(created.headers['connection']).toBeUndefined();
  expect(created.headers['x-request-id']).toMatch(/^[0-9a-f]{16}$/);
  expect(JSON.parse((await api(session, 'GET', `/sandbox/${id}`)).text)).toMatchObject({ id, name: 'h2' });
  expect((await api(session, 'GET', '/nothing')).status).toBe(404);
  expect((await api(session, 'GET', `/sandbox/${id}`, undefined, { authorization: '' })).status).toBe(401);
  expect((await api(session, 'POST', '/sandbox/status:batchGet', 'x'.repeat(2_000_000))).status).toBe(413);
  const old = await secure<{ gateway_url: string }>('POST', `/api/v1/sandbox/${id}/auth`);
  expect(old.body.gateway_url).toBe(`${world.address}/gw`);
  expect(old.headers['connection']).toBe('keep-alive');
  expect((await api(session, 'DELETE', `/sandbox/${id}`)).status).toBe(200);
  session.close();
});

it('believes forwarded hosts of a trusted proxy only, over HTTP/2 too', async () => {
  const sandbox = await api(open(), 'POST', '/sandbox?wait=10', {
    name: 'p',
    docker_image: 'python:3.11-slim',
  });
  const { id } = JSON.parse(sandbox.text) as { id: string };
  const headers = { 'x-forwarded-host': 'boxes.example.org', 'x-forwarded-proto': 'https' };
  const ask = async (session: ClientHttp2Session) =>
    (
      JSON.parse((await api(session, 'POST', `/sandbox/${id}/auth`, undefined, headers)).text) as {
        gateway_url: string;
      }
    ).gateway_url;
  expect(await ask(open())).toBe(`${world.address}/gw`);
  expect(await ask(open({ localAddress: '127.0.0.2' }))).toBe('https://boxes.example.org/gw');
});

it('passes method, path, host, headers and body to the node as HTTP/1.1, and the answer back', async () => {
  world.node.gateway = async (incoming, outgoing) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const { method, url, headers, httpVersion } = incoming;
    outgoing.writeHead(418, 'Odd', { 'x-two': ['a', 'b'], connection: 'close', 'Content-Type': 'x/y' });
    outgoing.end(
      JSON.stringify({ method, url, headers, httpVersion, body: Buffer.concat(chunks).toString() }),
    );
  };
  const stream = open().request({
    ':method': 'PUT',
    ':path': '/gw/u/s/upload?path=%2Fa%20b',
    te: 'trailers',
    'x-end': '2',
  });
  stream.end('hello');
  const answer = await finish(stream);
  expect(answer).toMatchObject({ status: 418, headers: { 'x-two': 'a, b', 'content-type': 'x/y' } });
  for (const name of ['connection', 'keep-alive', 'transfer-encoding'])
    expect(answer.headers[name]).toBeUndefined();
  const told = JSON.parse(answer.text) as { headers: Record<string, string> };
  expect(told).toMatchObject({
    method: 'PUT',
    url: '/gw/u/s/upload?path=%2Fa%20b',
    httpVersion: '1.1',
    body: 'hello',
  });
  expect(told.headers).toMatchObject({
    host: new URL(world.address).host,
    'x-end': '2',
    'transfer-encoding': 'chunked',
  });
  expect(told.headers['te']).toBeUndefined();
  const bare = open().request({ ':path': '/gw/u/s/download' });
  const without = JSON.parse((await finish(bare)).text) as { headers: Record<string, string>; body: string };
  expect([without.body, without.headers['transfer-encoding']]).toEqual(['', undefined]);
  const head = await finish(open().request({ ':method': 'HEAD', ':path': '/gw/u/s/download' }));
  expect([head.status, head.text]).toEqual([418, '']);
});

it('streams both ways at once: the head first, then each part, trailers last', async () => {
  const { sent, seen, response } = begin(open(), '/gw/u/s/command_session.CommandSession/Start');
  sent.write('one');
  const incoming = await seen;
  expect(String(await nextChunk(incoming))).toBe('one');
  const outgoing = await response;
  const head = once(sent, 'response');
  outgoing.writeHead(200, { 'content-type': 'application/connect+proto', trailer: 'x-end' });
  outgoing.flushHeaders();
  expect((await head)[0]).toMatchObject({ ':status': 200, 'content-type': 'application/connect+proto' });
  outgoing.write('two');
  expect(String(await nextChunk(sent))).toBe('two');
  sent.write('three');
  expect(String(await nextChunk(incoming))).toBe('three');
  const trailers = once(sent, 'trailers');
  sent.end();
  outgoing.addTrailers({ 'x-end': 'yes' });
  outgoing.end('four');
  expect(String(await nextChunk(sent))).toBe('four');
  expect((await trailers)[0]).toMatchObject({ 'x-end': 'yes' });
});

it.each([
  ['cancel', constants.NGHTTP2_CANCEL],
  ['reset without a code', constants.NGHTTP2_NO_ERROR],
  ['lost connection', undefined],
] as const)('a %s ends the call at the node, before and after the answer began', async (_how, code) => {
  for (const begun of [false, true]) {
    const seen = promised<IncomingMessage>();
    const answered = promised<void>();
    world.node.gateway = (incoming, outgoing) => {
      if (begun) outgoing.writeHead(200).write('part');
      seen.resolve(incoming);
    };
    const client = await RawHttp2Client.open(Number(new URL(world.address).port), ca);
    client.onBytes(answered.resolve);
    client.beginPost('/gw/u/s/upload', 'half');
    const incoming = await seen.promise;
    const errors: Error[] = [];
    incoming.on('error', (error) => errors.push(error));
    let ended = false;
    incoming.once('end', () => {
      ended = true;
    });
    const closed = once(incoming, 'close');
    expect(String(await nextChunk(incoming))).toBe('half');
    incoming.resume();
    await answered.promise;
    if (code !== undefined) client.reset(code);
    else client.close();
    await closed;
    client.close();
    // Half an upload must not be taken for a whole one.
    expect([ended, errors.length]).toEqual([false, 1]);
  }
});

it('a broken-off upload to the API is an error there, not a short body', async () => {
  const session = open();
  const read = world.node.files.size;
  const stream = session.request({
    ':method': 'POST',
    ':path': '/api/v1/images/local:import?name=cut',
    authorization: `Bearer ${world.key}`,
    'content-type': 'application/octet-stream',
  });
  stream.on('error', () => undefined);
  stream.write(randomBytes(1000));
  await world.eventually(() => world.node.calls.some((call) => call.includes('images:import')));
  stream.close(constants.NGHTTP2_CANCEL);
  await pause(200);
  expect(world.node.files.size).toBe(read);
  expect((await api(session, 'GET', '/status')).status).toBe(200);
});

it('a body that is refused and never ends costs its client the stream, and nobody else anything', async () => {
  const other = new World({ tls: { ...files } });
  await other.node.start();
  await other.startPlane({ bodyTimeoutMs: 300 });
  const session = connect(other.address, { ca });
  session.on('error', () => undefined);
  try {
    for (const path of ['/nothing', '/api/v1/sandbox']) {
      const sent = session.request({
        ...{ ':method': 'POST', ':path': path, 'content-type': 'application/json' },
      });
      sent.on('error', () => undefined);
      sent.write(Buffer.alloc(2 * 1024 * 1024, '['));
      const [headers] = (await once(sent, 'response')) as [Record<string, unknown>];
      expect(Number(headers[':status'])).toBeGreaterThanOrEqual(400);
      sent.resume();
      await once(sent, 'close');
    }
    const alive = session.request({ ':path': '/api/v1/sandbox' });
    expect((await finish(alive)).status).toBe(401);
  } finally {
    session.destroy();
    await other.close();
  }
});

it('an answer that the node breaks off is broken off with an error, not ended', async () => {
  const { sent, response } = begin(open(), '/gw/u/s/download');
  sent.end();
  const outgoing = await response;
  outgoing.writeHead(200).write('half');
  await once(sent, 'response');
  sent.resume();
  const closed = once(sent, 'close');
  outgoing.destroy();
  await closed;
  expect(sent.rstCode).toBe(constants.NGHTTP2_INTERNAL_ERROR);
});

it('an answer before the upload has ended reaches the client, whole', async () => {
  const { sent, response } = begin(open(), '/gw/u/s/upload');
  sent.write('begun');
  (await response).writeHead(413, { 'content-length': '3' }).end('big');
  const answer = await finish(sent);
  expect([answer.status, answer.text]).toEqual([413, 'big']);
  sent.close();
});

it('a slow reader holds the sender back, and its neighbours on the connection go on', {
  timeout: 120_000,
}, async () => {
  const total = 128 * 1024 * 1024;
  const large = new LargeAnswer(total);
  world.node.gateway = (incoming, outgoing) => {
    if (!incoming.url?.endsWith('/download')) return void outgoing.end('ok');
    large.sendTo(outgoing);
  };
  const session = open();
  const before = process.memoryUsage.rss();
  const stream = session.request({ ':path': '/gw/u/s/download' });
  await once(stream, 'response');
  await pause(500);
  expect(large.produced).toBeLessThan(16 * 1024 * 1024);
  expect((await finish(session.request({ ':path': '/gw/u/s/exec' }))).text).toBe('ok');
  let received = 0;
  for await (const part of stream) received += (part as Buffer).length;
  expect(received).toBe(total);
  expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
});

it('a big upload to a slow node costs one window, then goes through', { timeout: 120_000 }, async () => {
  const total = 128 * 1024 * 1024;
  const chunk = randomBytes(1024 * 1024);
  let received = 0;
  let isOpen = false;
  let goOn: () => void = () => undefined;
  world.node.gateway = async (incoming, outgoing) => {
    if (!incoming.url?.endsWith('/upload')) return void outgoing.end('ok');
    if (!isOpen) await new Promise<void>((resolve) => (goOn = resolve));
    for await (const part of incoming) received += (part as Buffer).length;
    outgoing.end('done');
  };
  const session = open();
  const before = process.memoryUsage.rss();
  const stream = session.request({ ':method': 'POST', ':path': '/gw/u/s/upload' });
  const answer = finish(stream);
  let written = 0;
  const writing = (async () => {
    for (; written < total; written += chunk.length) if (!stream.write(chunk)) await once(stream, 'drain');
    stream.end();
  })();
  await pause(500);
  expect(written).toBeLessThan(16 * 1024 * 1024);
  expect((await finish(session.request({ ':path': '/gw/u/s/exec' }))).text).toBe('ok');
  isOpen = true;
  goOn();
  await writing;
  expect((await answer).text).toBe('done');
  expect(received).toBe(total);
  expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
});

it('carries 200 streams on one connection', async () => {
  const waiting: ServerResponse[] = [];
  world.node.gateway = (_incoming, outgoing) => {
    outgoing.writeHead(200).write('x');
    waiting.push(outgoing);
  };
  const session = open();
  const streams = Array.from({ length: 200 }, () => session.request({ ':path': '/gw/u/s/stream' }));
  await Promise.all(streams.map((stream) => nextChunk(stream)));
  for (const outgoing of waiting) outgoing.end('y');
  const texts = await Promise.all(streams.map(async (stream) => (await finish(stream)).text));
  expect(new Set(texts)).toEqual(new Set(['y']));
  expect(session.remoteSettings.maxConcurrentStreams).toBe(256);
});

it('ends the connection of a client that floods it with resets; others are served', {
  timeout: 60_000,
}, async () => {
  let calls = 0;
  world.node.gateway = () => void calls++;
  const session = open();
  const closed = once(session, 'close');
  const calm = open();
  for (let round = 0; round < 200 && !session.closed && !session.destroyed; round++) {
    for (let at = 0; at < 50; at++) {
      const stream = session.request({ ':path': '/gw/u/s/stream' });
      stream.on('error', () => undefined);
      stream.close(constants.NGHTTP2_CANCEL);
    }
    await pause(5);
  }
  await closed;
  expect(calls).toBeLessThan(3_000);
  expect((await api(calm, 'GET', '/status')).status).toBe(200);
});

it('takes HTTP/1.1 over TLS: streams, uploads and trailers as without', async () => {
  world.node.gateway = async (incoming, outgoing) => {
    let bytes = 0;
    for await (const part of incoming) bytes += (part as Buffer).length;
    outgoing.writeHead(200, { trailer: 'x-end' });
    outgoing.addTrailers({ 'x-end': 'yes' });
    outgoing.end(String(bytes));
  };
  const sent = request(`${world.address}/gw/u/s/upload`, { method: 'POST', ca, agent: false });
  sent.end(randomBytes(3_000_000));
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const part of answer) text += String(part);
  expect([answer.httpVersion, text, answer.trailers]).toEqual(['1.1', '3000000', { 'x-end': 'yes' }]);
});

it('closes with streams open: they have their grace, then end', async () => {
  const other = await new World({ tls: { ...files } }).open();
  other.node.gateway = (_incoming, outgoing) => void outgoing.writeHead(200).write('x');
  const session = connect(other.address, { ca });
  session.on('error', () => undefined);
  const stream = session.request({ ':path': '/gw/u/s/stream' });
  stream.on('error', () => undefined);
  await nextChunk(stream);
  const idle = connect(other.address, { ca });
  await once(idle, 'connect');
  const idleClosed = once(idle, 'close');
  const closed = once(session, 'close');
  const begun = performance.now();
  await Promise.all([other.close(), closed, idleClosed]);
  expect(performance.now() - begun).toBeLessThan(10_000);
});

it('uses a renewed certificate without a restart, and keeps the old one while only one file is new', async () => {
  const served = authority.issue('served', 'IP:127.0.0.1');
  const other = new World({ tls: served });
  await other.node.start();
  await other.startPlane({ certificateLookMs: 20 });
  try {
    const name = () => commonName(Number(new URL(other.address).port));
    expect(await name()).toBe('served');
    copyFileSync(renewed.certPath, served.certPath);
    await other.eventually(() => other.logged.some((line) => line.includes('the old one stays in use')));
    expect(await name()).toBe('served');
    copyFileSync(renewed.keyPath, served.keyPath);
    await other.eventually(async () => (await name()) === 'renewed');
  } finally {
    await other.close();
  }
});

async function commonName(port: number): Promise<unknown> {
  const socket: TLSSocket = connectTls({ host: '127.0.0.1', port, ca });
  await once(socket, 'secureConnect');
  const { CN } = socket.getPeerCertificate().subject;
  socket.destroy();
  return CN;
}

/** One request over HTTP/1.1 and TLS on a kept connection. */
function secure<T>(method: string, path: string): Promise<{ headers: IncomingMessage['headers']; body: T }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${world.address}${path}`,
      { method, ca, headers: { authorization: `Bearer ${world.key}`, connection: 'keep-alive' } },
      async (answer) => {
        let text = '';
        for await (const part of answer) text += String(part);
        resolve({ headers: answer.headers, body: JSON.parse(text) as T });
      },
    );
    sent.once('error', reject);
    sent.end();
  });
}

function promised<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

async function nextChunk(stream: IncomingMessage | ClientHttp2Stream): Promise<Buffer> {
  for (;;) {
    const ready = stream.read() as Buffer | null;
    if (ready !== null) return ready;
    await once(stream, 'readable');
  }
}

function once(emitter: NodeJS.EventEmitter, event: string): Promise<unknown[]> {
  return new Promise((resolve) => emitter.once(event, (...values) => resolve(values)));
}
