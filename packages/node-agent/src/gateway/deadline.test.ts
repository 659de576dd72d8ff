/** The end of an exec by its deadline, as clients see it: never a lost stream, which they would repeat. */
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { CommandSession, type ExecStart } from '@sandlot/protocol';
import { afterEach, expect, it } from 'vitest';
import { GuestUnreachableError } from '../guest/channel.js';
import type { ExecEvent } from '../guest/exec-stream.js';
import type { Sandbox } from '../sandbox/sandbox.js';
import { createCommandSessionHandler } from './command-session.js';
import { sendFailure } from './failures.js';
import { restRoutes } from './rest.js';
import { SandboxAccess } from './sandbox-access.js';

let server: http.Server | undefined;
afterEach(() => new Promise((resolve) => server?.close(resolve)));

const started: ExecEvent = { kind: 'start', started: { execId: 'e', pid: 7 } as never };
const timedOut = {
  kind: 'end',
  end: { exitCode: 137, signal: 9, timedOut: true, oomKilled: false, droppedBytes: 0 },
} as ExecEvent;

/** Serves the gateway of a sandbox whose commands end as told; answers the URL and what was started. */
async function serve(guest: 'ends it in time' | 'is late' | 'is silent') {
  const starts: ExecStart[] = [];
  const exec = async (spec: ExecStart) => {
    starts.push(spec);
    let cancel = () => {};
    const cancelled = new Promise<'cancelled'>((resolve) => {
      cancel = () => resolve('cancelled');
    });
    const wait = (ms: number) => new Promise<'passed'>((resolve) => setTimeout(resolve, ms, 'passed'));
    return {
      cancel,
      async *events(): AsyncGenerator<ExecEvent> {
        yield started;
        const deadlineMs = spec.timeoutMs ?? 0;
        const endMs = { 'ends it in time': deadlineMs, 'is late': deadlineMs + 150, 'is silent': 20_000 };
        // As ExecStream: a cancelled stream breaks.
        if ((await Promise.race([wait(endMs[guest]), cancelled])) === 'cancelled')
          throw new GuestUnreachableError('the stream broke');
        yield timedOut;
      },
    };
  };
  const sandbox = { guest: { exec }, spec: {} } as unknown as Sandbox;
  const access = new SandboxAccess(sandbox, false);
  const handle = createCommandSessionHandler();
  server = http.createServer((request, response) => {
    if (request.url !== '/exec') return void handle(request, response, access);
    const call = {
      sandbox,
      access,
      request,
      response,
      query: new URLSearchParams(),
      signal: AbortSignal.timeout(9_000),
    };
    restRoutes
      .get('POST exec')?.(call)
      .catch((error: unknown) => sendFailure(response, error));
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, starts };
}

it.each(['ends it in time', 'is late', 'is silent'] as const)(
  'is deadline_exceeded of the exec service when the guest %s',
  async (guest) => {
    const { url, starts } = await serve(guest);
    const transport = createConnectTransport({ baseUrl: url, httpVersion: '1.1' });
    // As a header only: with the option the library would end it on this side.
    const options = { headers: { 'connect-timeout-ms': '200' } };
    const stream = createClient(CommandSession, transport).start({ command: { cmd: 'sleep' } }, options);
    const seen: (string | undefined)[] = [];
    const failure = await (async () => {
      for await (const { event } of stream) seen.push(event?.event.case);
      return undefined;
    })().catch((error: unknown) => ConnectError.from(error));
    expect(failure && Code[failure.code]).toBe('DeadlineExceeded');
    expect(seen).toEqual(['start']);
    expect(starts[0]?.timeoutMs).toBeLessThanOrEqual(200);
    expect(starts[0]?.timeoutMs).toBeGreaterThan(0);
  },
);

it('is 408 of the REST route', async () => {
  const { url, starts } = await serve('ends it in time');
  const body = JSON.stringify({ command: 'sleep 9', timeout: 0.1 });
  const answer = await fetch(`${url}/exec`, { method: 'POST', body });
  expect([answer.status, await answer.json()]).toEqual([
    408,
    { error: 'timeout', detail: expect.stringContaining('did not end within 0.1 s') },
  ]);
  expect(starts[0]?.timeoutMs).toBe(100);
});
