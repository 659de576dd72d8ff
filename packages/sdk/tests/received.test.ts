/** What a session says of the output that came in, when its stream is opened again. */
import type { HandlerContext } from '@connectrpc/connect';
import { afterEach, expect, it } from 'vitest';
import { event, until } from './command-service.js';
import { ExecServer } from './exec-server.js';

let server: ExecServer;
afterEach(() => server?.close());

const said = (context: HandlerContext) =>
  Object.fromEntries(new URLSearchParams(context.requestHeader.get('sandlot-attachment') ?? ''));
const begin = (context: HandlerContext, position: string) =>
  context.responseHeader.set('sandlot-position', position);

it('is where it stands: what came in, counted from where the server began', async () => {
  const attached: Record<string, string>[] = [];
  server = await ExecServer.open({
    async *start(_request, context) {
      attached.push(said(context));
      begin(context, 'stdout=0&stderr=0&pty=0&dropped=0');
      yield event.start();
      yield event.stdout('four');
      yield event.stderr('é');
      setTimeout(() => server.cut(), 50);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
    },
    async *attach(context) {
      attached.push(said(context));
      // Ten bytes were not kept any more.
      begin(context, 'stdout=14&stderr=2&pty=0&dropped=10');
      yield event.start();
      yield event.stdout('!');
      if (attached.length === 3) yield event.end(0);
      else setTimeout(() => server.cut(), 50);
      await new Promise((resolve) => setTimeout(resolve, 200));
    },
  });
  const result = await server.sandbox.run(['x'], { session: 's' });
  expect(result).toMatchObject({ stdout: 'four!!', stderr: 'é', exitCode: 0 });
  const [first, second, third] = attached;
  expect(first).toEqual({ reader: expect.any(String), confirms: '1' });
  expect(second).toEqual({ ...first, stdout: '4', stderr: '2', pty: '0', dropped: '0' });
  expect(third).toEqual({ ...first, stdout: '15', stderr: '2', pty: '0', dropped: '10' });
});

it('is its name only when the first answer was lost, and counts from zero when no position is told', async () => {
  const attached: Record<string, string>[] = [];
  server = await ExecServer.open({
    async *start(_request, context) {
      attached.push(said(context));
      if (attached.length === 1) {
        server.cut();
        await new Promise((resolve) => setTimeout(resolve, 100));
        return;
      }
      yield event.start();
      yield event.stdout('x');
      setTimeout(() => server.cut(), 50);
      await new Promise((resolve) => setTimeout(resolve, 500));
    },
    async *attach(context) {
      attached.push(said(context));
      yield event.start();
      yield event.end(0);
    },
  });
  await server.sandbox.run(['x'], { session: true });
  expect(attached).toHaveLength(3);
  expect(attached[1]).toEqual(attached[0]);
  expect(attached[2]).toEqual({ ...attached[0], stdout: '1', stderr: '0', pty: '0', dropped: '0' });
});

it('leaves out that it confirms, when it cannot know where a session of old begins', async () => {
  const attached: Record<string, string>[] = [];
  server = await ExecServer.open({
    async *start() {
      yield event.start();
    },
    async *attach(context) {
      attached.push(said(context));
      yield event.start();
      yield event.stdout(attached.length === 1 ? 'lost' : new Uint8Array(300 * 1024));
      yield event.end(0);
    },
  });
  const process = await server.sandbox.attach('s');
  let size = 0;
  for await (const chunk of process.stdout) size += chunk.byteLength;
  expect(size).toBe(300 * 1024);
  const [first] = attached;
  expect(attached).toEqual([{ reader: expect.any(String), confirms: '1' }, { reader: first?.['reader'] }]);
  expect(server.confirmations).toEqual([]);
});

it('is nothing for a command without a session', async () => {
  let attachment: Record<string, string> | undefined;
  server = await ExecServer.open({
    async *start(_request, context) {
      attachment = said(context);
      yield event.start();
      yield event.end(0);
    },
  });
  await server.sandbox.run(['x']);
  expect(attachment).toEqual({});
});

it.each<[string, string | true]>([
  ['with a position', 'a b'],
  ['without one, for a new session', true],
])('is confirmed while much comes in: %s', async (_how, session) => {
  const pieces = 10;
  server = await ExecServer.open({
    async *start(_request, context) {
      if (session !== true) begin(context, 'stdout=0&stderr=0&pty=0&dropped=0');
      yield event.start();
      for (let n = 0; n < pieces; n++) yield event.stdout(new Uint8Array(64 * 1024));
      await until(() => server.confirmations.some((query) => Number(query.get('stdout')) >= 512 * 1024));
      yield event.end(0);
    },
  });
  const result = await server.sandbox.run(['x'], { session });
  expect(result.stdoutBytes).toHaveLength(pieces * 64 * 1024);
  if (session !== true) expect(server.confirmations[0]?.get('session')).toBe(session);
  expect(server.confirmations.length).toBeLessThanOrEqual(10);
});
