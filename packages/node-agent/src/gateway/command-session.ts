/**
 * The Connect service `command_session.CommandSession` of a sandbox: the exec path of all newer
 * clients, of our SDK and of the CLI. The rules are in prime-wire 3.2.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { create } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import {
  attachmentHeader,
  type CommandInput,
  CommandSession,
  type CommandSessionEvent,
  CommandSessionEventSchema,
  type CommandSessionSelector,
  type ExecAttachment,
  type ExecEnd,
  type ExecStart,
  positionHeader,
  type StartRequest,
  type StartRequest_View,
} from '@sandlot/protocol';
import { GuestLeftError, GuestPausedError, GuestUnreachableError } from '../guest/channel.js';
import { GuestCallError } from '../guest/guest-client.js';
import { formatPosition, parseAttachment } from './attachment.js';
import { GatewayError } from './failures.js';
import { withKeepalive } from './keepalive.js';
import { requireGuest } from './require-guest.js';
import type { OpenExec, SandboxAccess } from './sandbox-access.js';
import { Utf8Boundary } from './utf8-boundary.js';

const accessKey = createContextKey<SandboxAccess | undefined>(undefined, { description: 'access' });
/** Proxies cut streams that are silent for a minute. */
const keepaliveMs = 15_000;
/** The guest ends a tree within two seconds of its deadline and says so; after this it is not waited for. */
const deadlineGraceMs = 5_000;

/** Serves one request of the service for a sandbox; resolves when the response has ended. */
export function createCommandSessionHandler(): (
  request: IncomingMessage,
  response: ServerResponse,
  access: SandboxAccess,
) => Promise<void> {
  const accessOf = new WeakMap<object, SandboxAccess>();
  const handler = connectNodeAdapter({
    routes,
    grpc: false,
    grpcWeb: false,
    // Small messages: compressing them costs more than it saves.
    compressMinBytes: 64 * 1024 * 1024,
    contextValues: (request) => createContextValues().set(accessKey, accessOf.get(request)),
    fallback: (_request, response) => {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ code: 'unimplemented', message: 'The service has no such method.' }));
    },
  });
  return (request, response, access) => {
    accessOf.set(request, access);
    return new Promise((resolve) => {
      response.once('close', resolve);
      handler(request, response);
    });
  };
}

function routes(router: ConnectRouter): void {
  router.service(CommandSession, {
    async *start(request, context) {
      yield* wrap(startEvents(request, context));
    },
    async *connect(request, context) {
      yield* wrap(attachEvents(request.session, context));
    },
    list: (_request, context) => translate(() => listSessions(context)),
    update: (request, context) =>
      translate(async () => {
        const { cols = 80, rows = 24 } = request.pty?.size ?? {};
        await guestOf(context).resize(await resolveSession(request.session, context), { cols, rows });
        return {};
      }),
    sendInput: (request, context) =>
      translate(async () => {
        const execId = await resolveSession(request.session, context);
        await guestOf(context).sendInput(execId, bytesOf(request.input), {
          ...(request.inputUuid ? { inputId: request.inputUuid } : {}),
          eof: request.closeStdin,
        });
        return {};
      }),
    sendSignal: (request, context) =>
      translate(async () => {
        if (request.signal === 0) throw new ConnectError('signal: is missing', Code.InvalidArgument);
        const execId = await resolveSession(request.session, context);
        await guestOf(context).sendSignal(execId, request.signal, request.signalUuid);
        return {};
      }),
    streamInput: (requests, context) =>
      translate(async () => {
        let execId: string | undefined;
        for await (const { event } of requests) {
          if (event.case === 'start') execId = await resolveSession(event.value.session, context);
          else if (event.case === 'data') {
            if (!execId)
              throw new ConnectError('the first message must name the session', Code.InvalidArgument);
            await guestOf(context).sendInput(execId, bytesOf(event.value.input ?? event.value.inputOld), {});
          }
        }
        return {};
      }),
  });
}

async function* startEvents(
  request: StartRequest,
  context: HandlerContext,
): AsyncGenerator<CommandSessionEvent> {
  const { command } = request;
  if (!command || command.cmd === '') throw new ConnectError('command.cmd: is missing', Code.InvalidArgument);
  const timeoutMs = context.timeoutMs();
  const size = request.pty
    ? { cols: request.pty.size?.cols || 80, rows: request.pty.size?.rows || 24 }
    : undefined;
  const spec: ExecStart = {
    argv: [command.cmd, ...command.args],
    env: command.envs,
    shellFallback: command.cmd === '/bin/bash' && command.args[0] === '-c',
    ...(command.cwd ? { cwd: command.cwd } : {}),
    ...(command.user ? { user: command.user } : {}),
    ...(request.stdin ? { stdin: true } : {}),
    ...(size ? { pty: size } : {}),
    ...(request.sessionUuid ? { sessionId: request.sessionUuid } : {}),
    ...(timeoutMs !== undefined ? { timeoutMs: Math.max(1, Math.round(timeoutMs)) } : {}),
  };
  const stream = await accessTo(context).exec(
    spec,
    request.view && wireView(request.view),
    undefined,
    attachmentOf(context),
  );
  yield* eventsOf(stream, context, deadlineGraceMs);
}

async function* attachEvents(
  selector: CommandSessionSelector | undefined,
  context: HandlerContext,
): AsyncGenerator<CommandSessionEvent> {
  const execId = await resolveSession(selector, context);
  const stream = await guestOf(context).attach(execId, undefined, attachmentOf(context));
  yield* eventsOf(stream, context, 0);
}

/** What our own SDK says of itself; other clients say nothing. */
function attachmentOf({ requestHeader }: HandlerContext): ExecAttachment {
  return parseAttachment(requestHeader.get(attachmentHeader) ?? '');
}

/**
 * The events of an exec in wire form. Ends the guest's stream when the client goes away. The library
 * aborts at the deadline of the call as well: then the guest, whose deadline is the same, has the
 * grace to end the command and tell its last output.
 */
async function* eventsOf(
  stream: OpenExec,
  context: HandlerContext,
  graceMs: number,
): AsyncGenerator<CommandSessionEvent> {
  let grace: NodeJS.Timeout | undefined;
  const cancel = () => {
    if (isDeadline(context) && graceMs > 0) grace = setTimeout(() => stream.cancel(), graceMs);
    else stream.cancel();
  };
  context.signal.addEventListener('abort', cancel, { once: true });
  const boundaries = { stdout: new Utf8Boundary(), stderr: new Utf8Boundary(), pty: new Utf8Boundary() };
  try {
    for await (const event of withKeepalive(stream.events(), keepaliveMs)) {
      if (event === 'keepalive') yield wireEvent({ case: 'keepalive', value: {} });
      else if (event.kind === 'start') {
        const { pid, position } = event.started;
        // The headers leave with the first event.
        if (position) context.responseHeader.set(positionHeader, formatPosition(position));
        yield wireEvent({ case: 'start', value: { pid } });
      } else if (event.kind === 'end') {
        for (const kind of ['stdout', 'stderr', 'pty'] as const) {
          const rest = boundaries[kind].flush();
          if (rest.length > 0) yield dataEvent(kind, rest);
        }
        if (event.end.timedOut) throw timedOut();
        yield endEvent(event.end);
      } else {
        const whole = boundaries[event.kind].push(event.data);
        if (whole.length > 0) yield dataEvent(event.kind, whole);
      }
    }
  } catch (error) {
    // Cancelled at the deadline: to the client that is not a stream that was lost.
    throw isDeadline(context) ? timedOut(error) : error;
  } finally {
    clearTimeout(grace);
    context.signal.removeEventListener('abort', cancel);
  }
}

function isDeadline({ signal }: HandlerContext): boolean {
  return signal.aborted && ConnectError.from(signal.reason).code === Code.DeadlineExceeded;
}

function timedOut(cause?: unknown): ConnectError {
  const message = 'The command did not end in time and was ended with all its processes.';
  return new ConnectError(message, Code.DeadlineExceeded, undefined, undefined, cause);
}

type EventInit = Extract<
  Parameters<typeof create<typeof CommandSessionEventSchema>>[1],
  { $typeName?: never }
>['event'];

function wireEvent(event: NonNullable<EventInit>): CommandSessionEvent {
  return create(CommandSessionEventSchema, { event });
}

function dataEvent(kind: 'stdout' | 'stderr' | 'pty', bytes: Buffer): CommandSessionEvent {
  return wireEvent({ case: 'data', value: { output: { case: kind, value: bytes } } });
}

function endEvent(end: ExecEnd): CommandSessionEvent {
  const { exitCode, signal, oomKilled, droppedBytes, error } = end;
  const status =
    signal === 0 ? `exit status ${exitCode}` : `signal ${signal}${oomKilled ? ' (out of memory)' : ''}`;
  return wireEvent({
    case: 'end',
    value: {
      exitCode,
      exited: signal === 0,
      status,
      signal,
      oomKilled,
      droppedBytes: BigInt(droppedBytes),
      ...(error ? { error } : {}),
    },
  });
}

async function listSessions(context: HandlerContext) {
  const execs = await accessTo(context).listExecs();
  return {
    sessions: execs
      .filter((info) => !info.end)
      .map((info) => ({
        command: {
          cmd: info.argv[0] ?? '',
          args: info.argv.slice(1),
          ...(info.cwd ? { cwd: info.cwd } : {}),
        },
        pid: info.pid,
        ...(info.session ? { sessionUuid: info.id } : {}),
      })),
  };
}

async function resolveSession(
  selector: CommandSessionSelector | undefined,
  context: HandlerContext,
): Promise<string> {
  const chosen = selector?.selector;
  if (chosen?.case === 'sessionUuid' && chosen.value !== '')
    return accessTo(context).requireExec(chosen.value);
  if (chosen?.case === 'pid') {
    const found = await accessTo(context).findExecByPid(chosen.value);
    if (found) return found.id;
    throw new ConnectError(`no command with pid ${chosen.value}`, Code.NotFound);
  }
  throw new ConnectError('session: name it by pid or session_uuid', Code.InvalidArgument);
}

function bytesOf(input: CommandInput | undefined): Uint8Array {
  return input?.input.value ?? new Uint8Array(0);
}

function accessTo(context: HandlerContext): SandboxAccess {
  const access = context.values.get(accessKey);
  if (!access) throw new ConnectError('no sandbox', Code.Internal);
  return access;
}

function guestOf(context: HandlerContext) {
  return requireGuest(accessTo(context).sandbox);
}

/** The view as REST has it; what is not set is not there, and judged with the rest. */
function wireView({ strength, hide, readonly, privateTmp, network }: StartRequest_View): unknown {
  return {
    ...(strength === undefined ? {} : { strength }),
    ...(hide.length > 0 ? { hide } : {}),
    ...(readonly.length > 0 ? { readonly } : {}),
    ...(privateTmp === undefined ? {} : { private_tmp: privateTmp }),
    ...(network === undefined ? {} : { network }),
  };
}

async function* wrap(
  events: AsyncGenerator<CommandSessionEvent>,
): AsyncGenerator<{ event: CommandSessionEvent }> {
  try {
    for await (const event of events) yield { event };
  } catch (error) {
    throw asConnectError(error);
  }
}

async function translate<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw asConnectError(error);
  }
}

const codeOfStatus = new Map([
  [400, Code.InvalidArgument],
  [403, Code.PermissionDenied],
  [422, Code.InvalidArgument],
  [503, Code.Unavailable],
]);

function asConnectError(error: unknown): unknown {
  if (error instanceof GuestCallError) {
    const code =
      error.status === 404
        ? Code.NotFound
        : error.status === 409
          ? Code.FailedPrecondition
          : error.status < 500
            ? Code.InvalidArgument
            : Code.Internal;
    return new ConnectError(error.message, code, undefined, undefined, error);
  }
  if (error instanceof GuestUnreachableError) {
    // Not one after which a client attaches again by itself: that would wake what somebody has just paused.
    const code = error instanceof GuestPausedError ? Code.FailedPrecondition : Code.Unavailable;
    return new ConnectError(
      error instanceof GuestLeftError ? error.message : `The sandbox did not answer: ${error.message}`,
      code,
      undefined,
      undefined,
      error,
    );
  }
  if (error instanceof GatewayError) {
    const code = codeOfStatus.get(error.status) ?? Code.NotFound;
    return new ConnectError(error.detail, code, undefined, undefined, error);
  }
  return error;
}
