/** API calls: key, retries, idempotency, error mapping, deadlines, cancelling, pages. */

import { idPattern } from '@sandlot/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { errorTable } from '../src/error-table.js';
import { errorFromBody } from '../src/http/error-answer.js';
import {
  AbortedError,
  AuthenticationError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  NotBuiltError,
  NotFoundError,
  PermissionError,
  RateLimitError,
  SandboxNotRunningError,
  Sandlot,
  SandlotError,
  ServerError,
  TooLargeError,
  ValidationError,
} from '../src/index.js';
import { fullIdPattern } from '../src/resources/sandboxes.js';
import { type Answer, type SeenRequest, TestServer } from './test-server.js';

const info = {
  id: 'sb1',
  name: 'n',
  dockerImage: 'i',
  status: 'RUNNING',
  labels: [],
  createdAt: '2026-01-01T00:00:00Z',
};

let server: TestServer;
let client: Sandlot;
afterEach(async () => {
  client?.close();
  await server?.close();
});

async function open(answer: (request: SeenRequest, count: number) => Answer, options: object = {}) {
  server = await TestServer.open(answer);
  client = new Sandlot({ url: server.url, apiKey: 'key-1', ...options });
}

describe('requests', () => {
  it('carry the key and the version, below /api/v1 even if the URL says so already', async () => {
    await open(() => ({ json: info }));
    const other = new Sandlot({ url: `${server.url}/api/v1/`, apiKey: 'key-2' });
    await other.sandboxes.info('sb1');
    other.close();
    expect(server.seen[0]).toMatchObject({ method: 'GET', path: '/api/v1/sandbox/sb1' });
    expect(server.seen[0]?.headers.authorization).toBe('Bearer key-2');
    expect(server.seen[0]?.headers['user-agent']).toMatch(/^sandlot-sdk\/\d+\.\d+\.\d+ node\//);
  });

  it('go through a fetch of the caller', async () => {
    const asked: string[] = [];
    await open(() => ({ json: info }), {
      fetch: ((input: string, init: RequestInit) => {
        asked.push(`${init.method} ${new URL(input).pathname}`);
        return fetch(input, init);
      }) as typeof fetch,
    });
    expect((await client.sandboxes.info('sb1')).id).toBe('sb1');
    expect(asked).toEqual(['GET /api/v1/sandbox/sb1']);
  });

  it('refuse a URL that is none', () => {
    expect(() => new Sandlot({ url: 'not a url' })).toThrow(SandlotError);
    expect(() => new Sandlot({ url: 'ftp://x' })).toThrow(/http/);
  });
});

describe('create', () => {
  it('leaves out what was not given and keeps one idempotency key over all repeats', async () => {
    await open((_request, count) =>
      count < 3 ? { status: 503, json: { detail: 'starting' } } : { status: 201, json: info },
    );
    const sandbox = await client.sandboxes.create({
      image: 'python:3.11-slim',
      cpu: 2,
      startCommand: ['a', 'b'],
    });
    expect(sandbox.id).toBe('sb1');
    expect(server.seen).toHaveLength(3);
    const bodies = server.seen.map(({ body }) => JSON.parse(body));
    expect(new Set(bodies.map((body) => body.idempotency_key)).size).toBe(1);
    expect(bodies[0]).toEqual({
      name: 'python',
      docker_image: 'python:3.11-slim',
      cpu_cores: 2,
      labels: [],
      start_command: { executable: 'a', args: ['b'] },
      idempotency_key: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
  });

  it('is repeated after a connection that broke without an answer', async () => {
    await open((_request, count) =>
      count === 1 ? (response) => response.destroy() : { status: 201, json: info },
    );
    await client.sandboxes.create({ image: 'x' });
    expect(server.seen.map(({ body }) => JSON.parse(body).idempotency_key)[0]).toBe(
      JSON.parse(server.seen[1]?.body ?? '').idempotency_key,
    );
  });

  it('gives up after maxRetries with the last error', async () => {
    await open(() => ({ status: 503, json: { detail: 'full' } }), { maxRetries: 1 });
    await expect(client.sandboxes.create({ image: 'x' })).rejects.toThrow(ServerError);
    expect(server.seen).toHaveLength(2);
  });
});

describe('a POST that is not idempotent', () => {
  it('is not repeated after an unclear failure', async () => {
    await open(() => ({ status: 503, json: { detail: 'x' } }));
    await expect(client.accounts.createUser('u')).rejects.toThrow(ServerError);
    expect(server.seen).toHaveLength(1);
  });

  it('is repeated after 429, which has not been carried out', async () => {
    await open((_request, count) =>
      count === 1
        ? { status: 429, headers: { 'retry-after': '0' }, json: { detail: 'slow down' } }
        : { json: { id: 'u1' } },
    );
    await client.accounts.createUser('u');
    expect(server.seen).toHaveLength(2);
  });
});

describe('errors', () => {
  const cases: [number, new (...parameters: never[]) => SandlotError][] = [
    [400, ValidationError],
    [401, AuthenticationError],
    [403, PermissionError],
    [404, NotFoundError],
    [409, ConflictError],
    [413, TooLargeError],
    [422, ValidationError],
    [500, ServerError],
    [501, NotBuiltError],
  ];
  it.each(cases)('%i becomes its class, with code, request id and text', async (status, errorClass) => {
    await open(() => ({
      status,
      headers: { 'x-request-id': 'req-7' },
      json: { detail: 'it failed because', code: 'SOME_CODE' },
    }));
    const error = await client.sandboxes.info('x').catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(errorClass);
    expect(error).toBeInstanceOf(SandlotError);
    expect(error).toMatchObject({
      status,
      code: 'SOME_CODE',
      requestId: 'req-7',
      message: 'it failed because',
      name: errorClass.name,
    });
  });

  it("of the server's table each have a class of their own kind", () => {
    for (const [code, { status }] of Object.entries(errorTable)) {
      const error = errorFromBody('x', status, { code, detail: 'd' }, '', () => undefined);
      expect(error.constructor, code).not.toBe(SandlotError);
      expect(error).toMatchObject({ code, status });
    }
  });

  it('name each wrong field', async () => {
    await open(() => ({
      status: 422,
      json: { errors: [{ param: 'cpu_cores', details: 'must be at most 16' }] },
    }));
    const error = await client.sandboxes.create({ image: 'x' }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({
      problems: [{ field: 'cpu_cores', problem: 'must be at most 16' }],
      message: 'cpu_cores: must be at most 16',
    });
  });

  it('hold the beginning of an answer that is not JSON', async () => {
    await open(() => ({ status: 400, text: '<html>proxy says no</html>' }));
    await expect(client.sandboxes.info('x')).rejects.toThrow('proxy says no');
  });

  it('do not wait for longer than a minute on Retry-After', async () => {
    await open(() => ({
      status: 429,
      headers: { 'retry-after': '3600' },
      json: { detail: 'come back later' },
    }));
    const error = await client.sandboxes.info('x').catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(RateLimitError);
    expect((error as RateLimitError).retryAfterSeconds).toBe(3600);
    expect(server.seen).toHaveLength(1);
  });

  it('say when nothing listens', async () => {
    await open(() => ({ json: {} }));
    await server.close();
    const lost = new Sandlot({ url: server.url, apiKey: 'k', maxRetries: 0 });
    const error = await lost.sandboxes.info('x').catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ConnectionError);
    expect(error).toMatchObject({ code: 'ECONNREFUSED', cause: expect.any(Error) });
  });

  it('tell a server that is no Sandlot', async () => {
    await open(() => ({ text: '<html></html>' }), { maxRetries: 0 });
    await expect(client.sandboxes.info('x')).rejects.toThrow(/not JSON/);
  });
});

describe('time', () => {
  it('ends an attempt that is not answered', async () => {
    await open(() => () => undefined, { timeoutMs: 100, maxRetries: 0 });
    await expect(client.sandboxes.info('x')).rejects.toThrow(DeadlineError);
  });

  it('ends at once when the caller cancels, also between attempts', async () => {
    await open(() => ({ status: 503, json: {} }), { maxRetries: 50 });
    const abort = new AbortController();
    const begun = performance.now();
    setTimeout(() => abort.abort('enough'), 250);
    const error = await client.sandboxes
      .info('x', { signal: abort.signal })
      .catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(AbortedError);
    expect(error).toMatchObject({ name: 'AbortError', cause: 'enough' });
    expect(performance.now() - begun).toBeLessThan(2_000);
  });
});

describe('list', () => {
  it('reads page after page, and only as far as it is read', async () => {
    await open(({ query }) => {
      const page = Number(query.get('page'));
      return { json: { sandboxes: [{ ...info, id: `sb${page}` }], has_next: page < 3 } };
    });
    const ids = [];
    for await (const one of client.sandboxes.list({ labels: ['a', 'b'], activeOnly: true })) ids.push(one.id);
    expect(ids).toEqual(['sb1', 'sb2', 'sb3']);
    expect(server.seen[0]?.query.getAll('labels')).toEqual(['a', 'b']);
    expect(server.seen[0]?.query.get('is_active')).toBe('true');
    for await (const _ of client.sandboxes.list()) break;
    expect(server.seen).toHaveLength(4);
  });
});

describe('waitUntilRunning', () => {
  it('shows each state and ends when it runs', async () => {
    const states = ['PENDING', 'PROVISIONING', 'RUNNING'];
    await open((_request, count) => ({ json: { ...info, status: states[count - 1] } }));
    const seen: string[] = [];
    await client.sandboxes.waitUntilRunning('sb1', { onState: ({ status }) => seen.push(status) });
    expect(seen).toEqual(states);
  });

  it('fails with the reason when it ends instead', async () => {
    await open(() => ({
      json: { ...info, status: 'ERROR', errorType: 'IMAGE_PULL_FAILED', errorMessage: 'no such image' },
    }));
    const error = await client.sandboxes.waitUntilRunning('sb1').catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(SandboxNotRunningError);
    expect(error).toMatchObject({ sandboxStatus: 'ERROR', errorType: 'IMAGE_PULL_FAILED' });
    expect((error as Error).message).toContain('no such image');
  });
});

describe('find', () => {
  const answer = ({ path }: SeenRequest): Answer =>
    path === '/api/v1/sandbox'
      ? {
          json: {
            sandboxes: [
              { ...info, id: 'abc1' },
              { ...info, id: 'abd2', status: 'TERMINATED' },
              { ...info, id: 'abd3' },
              { ...info, id: 'x1' },
              { ...info, id: 'x2' },
            ],
            has_next: false,
          },
        }
      : { status: 404, json: { detail: 'there is no such sandbox' } };

  it('takes a unique beginning, and a living one before ended ones', async () => {
    await open(answer);
    expect((await client.sandboxes.find('abc')).id).toBe('abc1');
    expect((await client.sandboxes.find('abd')).id).toBe('abd3');
  });

  it('does not look up what is a whole id', async () => {
    await open(answer);
    expect(await client.sandboxes.resolveId('abcdefghijklmnopqrst')).toBe('abcdefghijklmnopqrst');
    expect(server.seen).toHaveLength(0);
    expect(await client.sandboxes.resolveId('abc')).toBe('abc1');
    expect(fullIdPattern.source).toBe(idPattern.source);
  });

  it('refuses what is not unique, and says what was not found', async () => {
    await open(answer);
    await expect(client.sandboxes.find('x')).rejects.toMatchObject({ code: 'AMBIGUOUS_ID' });
    await expect(client.sandboxes.find('q')).rejects.toThrow('there is no such sandbox');
  });

  it('never takes an empty id, as of an unset variable, for the only sandbox', async () => {
    await open(answer);
    for (const resolve of ['find', 'resolveId'] as const) {
      await expect(client.sandboxes[resolve]('')).rejects.toThrow('the id of a sandbox is empty');
      await expect(client.sandboxes[resolve]('../x')).rejects.toThrow('is not the id of a sandbox');
    }
    expect(server.seen).toHaveLength(0);
  });
});

it('a folder that is no OCI layout is not imported as something else', async () => {
  await open(() => ({ json: {} }));
  const events = client.images.importDirectory('a:1', import.meta.dirname);
  await expect(events.next()).rejects.toThrow('is not an OCI layout');
  expect(server.seen).toHaveLength(0);
});

describe('bulk calls', () => {
  it('ask for states a hundred at a time', async () => {
    await open(({ body }) => ({
      json: {
        statuses: JSON.parse(body).sandbox_ids.map((id: string) => ({ sandbox_id: id, status: 'RUNNING' })),
        errors: [],
      },
    }));
    const ids = Array.from({ length: 250 }, (_, index) => `s${index}`);
    expect((await client.sandboxes.statuses([...ids, 's0'])).size).toBe(250);
    expect(server.seen.map(({ body }) => JSON.parse(body).sandbox_ids.length)).toEqual([100, 100, 50]);
  });

  it('delete by label in one request and report what failed', async () => {
    await open(() => ({
      json: { succeeded: ['a'], failed: [{ sandbox_id: 'b', error: 'busy' }], message: '' },
    }));
    const result = await client.sandboxes.deleteMany({ labels: ['x'] });
    expect(JSON.parse(server.seen[0]?.body ?? '')).toEqual({ labels: ['x'], all_users: false });
    expect(result).toEqual({ succeeded: ['a'], failed: [{ id: 'b', error: 'busy' }] });
  });
});

describe('progress of images', () => {
  it('comes line by line, whatever the chunks, and ends with the image', async () => {
    const image = { reference: 'x:1', digest: 'sha256:0' };
    const text = `${JSON.stringify({ stage: 'download', doneBytes: 1, totalBytes: 2, message: 'é' })}\n${JSON.stringify({ done: image })}\n`;
    await open(() => (response) => {
      response.writeHead(200);
      const bytes = Buffer.from(text);
      const step = (at: number) => {
        if (at >= bytes.length) response.end();
        else {
          response.write(bytes.subarray(at, at + 7));
          setImmediate(step, at + 7);
        }
      };
      step(0);
    });
    const events = [];
    for await (const event of client.images.pull('x:1')) events.push(event);
    expect(events).toEqual([
      { stage: 'download', doneBytes: 1, totalBytes: 2, message: 'é' },
      { done: image },
    ]);
  });

  it('throws what the server reports, and when the stream breaks off', async () => {
    await open((_request, count) => ({
      text:
        count === 1 ? '{"error":{"code":"NOT_FOUND","message":"no such image"}}\n' : '{"stage":"build"}\n',
    }));
    const drain = async () => {
      for await (const _ of client.images.pull('x'));
    };
    await expect(drain()).rejects.toMatchObject({ code: 'NOT_FOUND', message: 'no such image' });
    await expect(drain()).rejects.toThrow(/broke off/);
  });
});
