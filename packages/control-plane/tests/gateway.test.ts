import { randomBytes } from 'node:crypto';
import { Agent, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { LargeAnswer } from './fake-node.js';
import { send, World } from './world.js';

let world: World;
beforeAll(async () => {
  world = await new World().open();
});
afterAll(() => world.close());
beforeEach(() => {
  world.node.gateway = (_request, response) => response.end('ok');
});

type Exchange = {
  seen: Promise<IncomingMessage>;
  answer: Promise<IncomingMessage>;
  sent: ReturnType<typeof request>;
};

/** Begins a request whose body the test writes. */
function begin(
  path: string,
  headers: Record<string, string> = {},
): Exchange & { response: Promise<ServerResponse> } {
  let onSeen: (value: IncomingMessage) => void = () => undefined;
  let onResponse: (value: ServerResponse) => void = () => undefined;
  const seen = new Promise<IncomingMessage>((resolve) => {
    onSeen = resolve;
  });
  const response = new Promise<ServerResponse>((resolve) => {
    onResponse = resolve;
  });
  world.node.gateway = (incoming, outgoing) => {
    onSeen(incoming);
    onResponse(outgoing);
  };
  const sent = request(`${world.address}${path}`, { method: 'POST', headers, agent: false });
  sent.on('error', () => undefined);
  const answer = new Promise<IncomingMessage>((resolve, reject) => {
    sent.once('response', resolve);
    sent.once('error', reject);
  });
  answer.catch(() => undefined);
  return { sent, seen, response, answer };
}

it('passes method, path, headers and body on, and status, headers and body back', async () => {
  world.node.gateway = async (incoming, outgoing) => {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    outgoing.writeHead(418, 'Odd', {
      'content-type': 'x/y',
      'x-two': ['a', 'b'],
      'content-encoding': 'identity',
    });
    outgoing.end(
      JSON.stringify({
        method: incoming.method,
        url: incoming.url,
        headers: incoming.headers,
        body: Buffer.concat(chunks).toString(),
      }),
    );
  };
  const answer = await send<{ method: string; url: string; headers: Record<string, string>; body: string }>(
    `${world.address}/gw/u/s/upload?path=%2Fa%20b&x=1&x=2`,
    'POST',
    {
      raw: Buffer.from('hello'),
      key: 'token',
      headers: { connection: 'close, x-hop', 'x-hop': '1', 'x-end': '2' },
    },
  );
  expect(answer.status).toBe(418);
  expect(answer.headers).toMatchObject({
    'content-type': 'x/y',
    'x-two': 'a, b',
    'content-encoding': 'identity',
  });
  expect(answer.body).toMatchObject({
    method: 'POST',
    url: '/gw/u/s/upload?path=%2Fa%20b&x=1&x=2',
    body: 'hello',
  });
  expect(answer.body.headers).toMatchObject({
    authorization: 'Bearer token',
    'x-end': '2',
    'content-length': '5',
  });
  expect(answer.body.headers['x-hop']).toBeUndefined();
});

it('gives each request an id, the client’s own if it looks like one, for the node and the answer', async () => {
  world.node.gateway = (incoming, outgoing) =>
    outgoing.end(JSON.stringify({ id: incoming.headers['x-request-id'] }));
  const ask = (given: string) =>
    send<{ id: string }>(`${world.address}/gw/u/s/exec`, 'POST', { headers: { 'x-request-id': given } });
  const own = await ask('my-3');
  expect([own.body.id, own.headers['x-request-id']]).toEqual(['my-3', 'my-3']);
  const made = await ask('a b');
  expect(made.body.id).toMatch(/^[0-9a-f]{16}$/);
  expect(made.headers['x-request-id']).toBe(made.body.id);
});

it('streams both ways without waiting for the whole: the head first, then each part, trailers last', async () => {
  const { sent, seen, response, answer } = begin('/gw/u/s/command_session.CommandSession/Start', {
    te: 'trailers',
  });
  sent.write('one');
  const incoming = await seen;
  expect(String(await nextChunk(incoming))).toBe('one');
  const outgoing = await response;
  outgoing.writeHead(200, { 'content-type': 'application/connect+proto', trailer: 'x-end' });
  outgoing.flushHeaders();
  const back = await answer;
  expect(back.statusCode).toBe(200);
  outgoing.write('two');
  expect(String(await nextChunk(back))).toBe('two');
  sent.write('three');
  expect(String(await nextChunk(incoming))).toBe('three');
  sent.end();
  outgoing.addTrailers({ 'x-end': 'yes' });
  outgoing.end('four');
  expect(String(await nextChunk(back))).toBe('four');
  await new Promise((resolve) => back.once('end', resolve).resume());
  expect(back.trailers).toEqual({ 'x-end': 'yes' });
});

it('a client that goes away ends the call at the node, before and after the answer began', async () => {
  for (const begun of [false, true]) {
    const { sent, seen, response, answer } = begin('/gw/u/s/exec');
    sent.write('x');
    const incoming = await seen;
    const closed = new Promise((resolve) => incoming.once('close', resolve));
    if (begun) {
      (await response).writeHead(200).write('part');
      await answer;
    }
    sent.destroy();
    await closed;
  }
});

it('an answer that the node breaks off is broken off, not ended', async () => {
  const { sent, response, answer } = begin('/gw/u/s/download');
  sent.end();
  const outgoing = await response;
  outgoing.writeHead(200);
  outgoing.write('half');
  const back = await answer;
  back.on('error', () => undefined);
  const cut = new Promise((resolve) => back.once('aborted', resolve));
  back.resume();
  outgoing.destroy();
  await cut;
  expect(back.complete).toBe(false);
});

it('a slow reader holds the sender back instead of filling memory', async () => {
  const total = 256 * 1024 * 1024;
  const large = new LargeAnswer(total);
  world.node.gateway = (_incoming, outgoing) => {
    large.sendTo(outgoing);
  };
  const before = process.memoryUsage.rss();
  const sent = request(`${world.address}/gw/u/s/download`, { agent: false });
  const answer = await new Promise<IncomingMessage>((resolve) => sent.once('response', resolve).end());
  answer.pause();
  await pause(300);
  expect(large.produced).toBeLessThan(32 * 1024 * 1024);
  let received = 0;
  for await (const part of answer) received += (part as Buffer).length;
  expect(received).toBe(total);
  expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
});

it('a large upload goes through with flat memory', async () => {
  const total = 256 * 1024 * 1024;
  const chunk = randomBytes(1024 * 1024);
  let received = 0;
  world.node.gateway = async (incoming, outgoing) => {
    for await (const part of incoming) received += (part as Buffer).length;
    outgoing.end('done');
  };
  const before = process.memoryUsage.rss();
  const sent = request(`${world.address}/gw/u/s/upload`, { method: 'POST', agent: false });
  const done = new Promise<IncomingMessage>((resolve) => sent.once('response', resolve));
  for (let at = 0; at < total; at += chunk.length)
    if (!sent.write(chunk)) await new Promise((resolve) => sent.once('drain', resolve));
  sent.end();
  (await done).resume();
  expect(received).toBe(total);
  expect(process.memoryUsage.rss() - before).toBeLessThan(150 * 1024 * 1024);
});

it('an answer before the upload has ended reaches the client', async () => {
  const { sent, response, answer } = begin('/gw/u/s/upload');
  sent.write('begun');
  (await response).writeHead(413, { 'content-length': '3' }).end('big');
  expect((await answer).statusCode).toBe(413);
  sent.destroy();
});

it('waits for a node agent that is being restarted', async () => {
  await world.node.stop();
  const early = send(`${world.address}/gw/u/s/exec`, 'POST', { raw: Buffer.from('{}') });
  await pause(200);
  await world.node.start();
  expect((await early).status).toBe(200);
});

it('says "try again" in the form of REST and of Connect when the node stays away', {
  timeout: 20_000,
}, async () => {
  await world.node.stop();
  const [rest, rpc] = await Promise.all([
    send(`${world.address}/gw/u/s/exec`, 'POST', { raw: Buffer.from('{}') }),
    send(`${world.address}/gw/u/s/command_session.CommandSession/Start`, 'POST', { raw: Buffer.from('x') }),
  ]);
  await world.node.start();
  await world.inStep();
  expect(rest).toMatchObject({ status: 409, body: { error: 'node_unavailable' } });
  expect(rpc).toMatchObject({ status: 503, body: { code: 'unavailable' } });
  expect(rpc.headers['content-type']).toBe('application/json');
});

it('a call that the node may have begun is never answered with "try again"', async () => {
  world.node.gateway = (incoming) => void incoming.once('data', () => incoming.socket.destroy());
  const rest = await send(`${world.address}/gw/u/s/exec`, 'POST', { raw: Buffer.from('{}') });
  expect(rest).toMatchObject({ status: 502, body: { error: 'node_connection_lost' } });
  const url = `${world.address}/gw/u/s/command_session.CommandSession`;
  const input = await send(`${url}/SendInput`, 'POST', { raw: Buffer.from('x') });
  expect(input).toMatchObject({ status: 503, body: { code: 'unavailable' } });
  // Clients of a stream read the code from its last message only: flags, length, JSON.
  const start = await fetch(`${url}/Start`, { method: 'POST', body: 'x' });
  expect(start.headers.get('content-type')).toBe('application/connect+proto');
  const bytes = Buffer.from(await start.arrayBuffer());
  expect([bytes.readUInt8(0), bytes.readUInt32BE(1)]).toEqual([2, bytes.length - 5]);
  const end: unknown = JSON.parse(bytes.subarray(5).toString());
  const message = expect.stringContaining('may have been carried out');
  expect(end).toEqual({ error: { code: 'aborted', message } });
  const typed = await fetch(`${url}/StreamInput`, {
    method: 'POST',
    body: 'x',
    headers: { 'content-type': 'application/connect+json' },
  });
  expect(typed.headers.get('content-type')).toBe('application/connect+json');
  expect(JSON.parse((await typed.text()).slice(5))).toEqual({ error: { code: 'aborted', message } });
});

it('a thousand streams at once', async () => {
  const outgoing: ServerResponse[] = [];
  world.node.gateway = (_incoming, response) => {
    response.writeHead(200).write('x');
    outgoing.push(response);
  };
  const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY });
  const answers = await Promise.all(
    Array.from({ length: 1000 }, async () => {
      const sent = request(`${world.address}/gw/u/s/stream`, { agent });
      const answer = await new Promise<IncomingMessage>((resolve, reject) => {
        sent.once('response', resolve).once('error', reject).end();
      });
      await nextChunk(answer);
      return answer;
    }),
  );
  expect(answers).toHaveLength(1000);
  for (const response of outgoing) response.end();
  await Promise.all(answers.map((answer) => new Promise((resolve) => answer.once('end', resolve).resume())));
  agent.destroy();
});

it('adds little time to a call', async () => {
  const agent = new Agent({ keepAlive: true });
  const call = (target: object) =>
    new Promise<void>((resolve, reject) => {
      request({ ...target, path: '/gw/u/s/exec', agent }, (answer) => answer.resume().once('end', resolve))
        .once('error', reject)
        .end();
    });
  const { hostname, port } = new URL(world.address);
  const through = { hostname, port };
  const direct = { socketPath: world.node.socketPath };
  const p50 = async (target: object) => {
    const times: number[] = [];
    for (let round = 0; round < 300; round++) {
      const begun = performance.now();
      await call(target);
      times.push(performance.now() - begun);
    }
    return times.sort((left, right) => left - right)[150] as number;
  };
  await p50(through);
  const [bare, forwarded] = [await p50(direct), await p50(through)];
  console.log(
    `gateway call: direct ${bare.toFixed(2)} ms, through the control plane ${forwarded.toFixed(2)} ms`,
  );
  expect(forwarded - bare).toBeLessThan(5);
  agent.destroy();
});

it('bytes that are no HTTP do no harm', async () => {
  const { hostname, port } = new URL(world.address);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.write('\0\0\0 nonsense\r\n\r\n');
  const [first] = (await once(socket, 'data')) as [Buffer];
  expect(String(first)).toContain('400');
  socket.destroy();
  expect((await send(`${world.address}/healthz`, 'GET', {})).status).toBe(200);
});

async function nextChunk(stream: IncomingMessage): Promise<Buffer> {
  const ready = stream.read() as Buffer | null;
  if (ready !== null) return ready;
  await once(stream, 'readable');
  return stream.read() as Buffer;
}

function once(emitter: NodeJS.EventEmitter, event: string): Promise<unknown[]> {
  return new Promise((resolve) => emitter.once(event, (...values) => resolve(values)));
}
