/** The exec service's protocol, below the process object: messages however they are cut, and failures in all their forms. */
import { expect, it } from 'vitest';
import { readEnvelopes, writeEnvelope } from '../src/exec/envelopes.js';
import { isStreamLoss, toExecError, wasRefused } from '../src/exec/exec-errors.js';
import { ServiceError } from '../src/exec/service-error.js';
import {
  AbortedError,
  AuthenticationError,
  ConflictError,
  ConnectionError,
  NotBuiltError,
  NotFoundError,
  ServerError,
} from '../src/index.js';

async function* inChunks(bytes: Uint8Array, sizes: (at: number) => number) {
  for (let at = 0, count = 0; at < bytes.byteLength; count++) {
    const size = sizes(count);
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

async function collect(body: AsyncIterable<Uint8Array>) {
  const seen: { flags: number; size: number; sum: number }[] = [];
  for await (const { flags, data } of readEnvelopes(body)) {
    seen.push({ flags, size: data.byteLength, sum: data.reduce((sum, byte) => sum + byte, 0) });
  }
  return seen;
}

const sizes = [0, 1, 4, 5, 6, 70_000, 0, 3];
const stream = Buffer.concat(
  sizes.map((size, at) => writeEnvelope(at % 4, new Uint8Array(size).fill(at + 1))),
);

it.each([1, 2, 3, 4, 5, 6, 7, 100, 65_536, 1_000_000])('messages in chunks of %i bytes', async (size) => {
  expect(await collect(inChunks(stream, () => size))).toEqual(
    sizes.map((length, at) => ({ flags: at % 4, size: length, sum: length * (at + 1) })),
  );
});

it('a stream that ends within a message, or has one that cannot be, is an error', async () => {
  for (const cut of [1, 4, 6, stream.byteLength - 1]) {
    await expect(collect(inChunks(stream.subarray(0, cut), () => 1_000))).rejects.toThrow(/within a message/);
  }
  const huge = Uint8Array.of(0, 255, 255, 255, 255, 1);
  await expect(collect(inChunks(huge, () => 2))).rejects.toThrow(/which cannot be/);
});

it.each([
  [404, '{"code":"not_found","message":"gone"}', NotFoundError, /^exec: gone$/],
  [404, '<html>', NotBuiltError, /HTTP 404/],
  [401, '', AuthenticationError, /HTTP 401/],
  [502, '{"code":"nonsense"}', ConnectionError, /unavailable/],
  [409, '{"code":"failed_precondition","message":"paused"}', ConflictError, /paused/],
  [418, 'null', ServerError, /unknown/],
])('status %i with %s before the stream', (status, body, kind, text) => {
  const error = toExecError('exec', ServiceError.fromAnswer(status, new TextEncoder().encode(body)));
  expect(error).toBeInstanceOf(kind);
  expect(error.message).toMatch(text);
  expect(wasRefused(error)).toBe(true);
});

it('the end of a stream is no refusal, and a closed one no cancelling by the caller', () => {
  const lost = toExecError('exec', ServiceError.fromJson({ code: 'aborted' }, 'unknown', false));
  expect([wasRefused(lost), isStreamLoss(lost)]).toEqual([false, true]);
  expect(toExecError('exec', new AbortedError('closed'))).toBeInstanceOf(ConnectionError);
  expect(toExecError('exec', new AbortedError('closed'), AbortSignal.abort())).toBeInstanceOf(AbortedError);
  const unreadable = toExecError('exec', new Error('bad bytes'));
  expect(unreadable).toBeInstanceOf(ServerError);
  expect(isStreamLoss(unreadable)).toBe(false);
});
