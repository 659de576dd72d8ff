/**
 * Asks the upstream DNS servers: UDP with a fresh port and id for each try, TCP when the answer was cut, every
 * server in turn. Called by `dns-answering.ts` with bytes, so that what a guest asked goes out unchanged.
 */
import { randomInt } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import type { Upstream, Upstreams } from './resolv-conf.js';
import { frameTcp, TcpFrames } from './tcp-frames.js';

/** Guests' resolvers give up after 5 s; two rounds over one server stay below it. */
const tryTimeoutMs = 2_000;
const deadlineMs = 4_700;
const rounds = 2;

/** The answer to a question in wire form, with the id of `query`. Throws if no server answers in time. */
export async function askUpstream(query: Buffer, upstreams: Upstreams): Promise<Buffer> {
  const deadline = Date.now() + deadlineMs;
  let failure: unknown;
  let fallback: Buffer | undefined;
  for (let round = 0; round < rounds; round += 1) {
    for (const upstream of await upstreams.list()) {
      const timeoutMs = Math.min(tryTimeoutMs, deadline - Date.now());
      if (timeoutMs <= 0) break;
      try {
        const answer = await askOne(query, upstream, timeoutMs);
        // SERVFAIL and REFUSED may be this server's trouble alone.
        const code = answer[3]! & 15;
        if (code !== 2 && code !== 5) return answer;
        fallback = answer;
      } catch (cause) {
        failure = cause;
      }
    }
    if (fallback) return fallback;
  }
  throw new Error('no upstream DNS server answered', { cause: failure });
}

async function askOne(query: Buffer, upstream: Upstream, timeoutMs: number): Promise<Buffer> {
  const sent = Buffer.from(query);
  sent.writeUInt16BE(randomInt(0x10000), 0);
  const signal = AbortSignal.timeout(timeoutMs);
  let answer = await askUdp(sent, upstream, signal);
  // TC: cut. If TCP fails the cut answer is better than none.
  if (answer[2]! & 2) answer = await askTcp(sent, upstream, signal).catch(() => answer);
  answer = Buffer.from(answer);
  query.copy(answer, 0, 0, 2);
  return answer;
}

function askUdp(query: Buffer, { address, port }: Upstream, signal: AbortSignal): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIPv6(address.split('%')[0]!) ? 'udp6' : 'udp4');
    const settle = (action: () => void): void => {
      signal.removeEventListener('abort', onAbort);
      socket.removeAllListeners();
      socket.on('error', () => {});
      socket.close();
      action();
    };
    const onAbort = (): void => settle(() => reject(new Error(`no answer from ${address} in time`)));
    signal.addEventListener('abort', onAbort);
    socket.on('error', (cause) =>
      settle(() => reject(new Error(`asking ${address} failed: ${cause.message}`, { cause }))),
    );
    // Connected: the kernel drops what comes from elsewhere, and reports a closed port at once.
    socket.on('connect', () => socket.send(query));
    socket.on('message', (answer) => {
      if (isAnswerTo(query, answer)) settle(() => resolve(answer));
    });
    socket.connect(port, address);
  });
}

function askTcp(query: Buffer, { address, port }: Upstream, signal: AbortSignal): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const frames = new TcpFrames();
    const socket = connect({ host: address, port, signal });
    socket.on('connect', () => socket.write(frameTcp(query)));
    socket.on('data', (part) => {
      for (const answer of frames.push(part)) {
        if (!isAnswerTo(query, answer)) continue;
        socket.destroy();
        resolve(answer);
      }
    });
    socket.on('error', reject);
    socket.on('close', () => reject(new Error(`${address} closed the connection without an answer`)));
  });
}

/** Same id, a response, and the same question (its letters' case is free). */
function isAnswerTo(query: Buffer, answer: Buffer): boolean {
  if (answer.length < 12 || answer.readUInt16BE(0) !== query.readUInt16BE(0) || !(answer[2]! & 0x80))
    return false;
  // Some servers leave the question out of an error.
  if (answer.readUInt16BE(4) === 0) return (answer[3]! & 15) !== 0;
  const length = questionLength(query);
  const text = (message: Buffer): string =>
    message
      .subarray(12, 12 + length)
      .toString('latin1')
      .toLowerCase();
  return text(answer) === text(query);
}

function questionLength(query: Buffer): number {
  let offset = 12;
  while (offset < query.length && query[offset] !== 0) offset += query[offset]! + 1;
  return offset + 5 - 12;
}
