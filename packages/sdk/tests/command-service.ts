/** The exec service of a test server: the test plays the commands, and sees what was sent. Used by the test servers of the SDK and of the command line. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  CommandSession,
  type CommandSessionEvent,
  CommandSessionEventSchema,
  type SendInputRequest,
  type SendSignalRequest,
  type StartRequest,
  type UpdateRequest,
} from '@sandlot/protocol';

/** Events of a command. */
export type Play = (request: StartRequest, context: HandlerContext) => AsyncGenerator<CommandSessionEvent>;

/** The events as short words. */
export const event = {
  start: (pid = 7) => create(CommandSessionEventSchema, { event: { case: 'start', value: { pid } } }),
  stdout: (text: string | Uint8Array) => data('stdout', text),
  stderr: (text: string | Uint8Array) => data('stderr', text),
  pty: (text: string | Uint8Array) => data('pty', text),
  end: (exitCode = 0, more: { signal?: number; oomKilled?: boolean } = {}) =>
    create(CommandSessionEventSchema, {
      event: { case: 'end', value: { exitCode, exited: !more.signal, status: '', ...more } },
    }),
};

function data(kind: 'stdout' | 'stderr' | 'pty', text: string | Uint8Array) {
  const value = typeof text === 'string' ? new TextEncoder().encode(text) : text;
  return create(CommandSessionEventSchema, {
    event: { case: 'data', value: { output: { case: kind, value } } },
  });
}

/** The service below a path. */
export class CommandService {
  readonly starts: StartRequest[] = [];
  readonly inputs: SendInputRequest[] = [];
  readonly signals: SendSignalRequest[] = [];
  readonly updates: UpdateRequest[] = [];
  readonly timeouts: (string | null)[] = [];
  attaches = 0;
  /** What a command does. */
  play: Play = async function* () {
    yield event.start();
    yield event.end();
  };
  /** What a session does that is attached to. */
  attach: (context: HandlerContext) => AsyncGenerator<CommandSessionEvent> = async function* () {};
  /** Serves one request. */
  readonly handle: (request: IncomingMessage, response: ServerResponse) => void;

  constructor(requestPathPrefix: string) {
    const self = this;
    this.handle = connectNodeAdapter({
      requestPathPrefix,
      routes: (router) =>
        router.service(CommandSession, {
          async *start(request, context) {
            self.starts.push(request);
            self.timeouts.push(context.requestHeader.get('connect-timeout-ms'));
            for await (const one of self.play(request, context)) yield { event: one };
          },
          async *connect(_request, context) {
            self.attaches++;
            for await (const one of self.attach(context)) yield { event: one };
          },
          async sendInput(request) {
            self.inputs.push(request);
            return {};
          },
          async sendSignal(request) {
            self.signals.push(request);
            return {};
          },
          async update(request) {
            self.updates.push(request);
            return {};
          },
        }),
    });
  }
}

/** Resolves once the condition holds; fails after some seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 5_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error('the condition did not come true');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
