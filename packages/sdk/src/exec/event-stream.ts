/**
 * Opens the event stream of a command: `Start` for a new one, `Connect` for a session that runs.
 * Decides which failures may be repeated without running a command twice. Called by `exec/start.ts`
 * and, after a lost connection, by the process object.
 */
import type { CommandSessionEvent } from '@sandlot/protocol';
import { attachmentHeader, positionHeader } from '@sandlot/protocol/guest-api';
import {
  AuthenticationError,
  ConnectionError,
  NotBuiltError,
  NotFoundError,
  SandboxNotRunningError,
  SandlotError,
} from '../errors.js';
import { pause, wasNeverSent } from '../http/retry.js';
import type { TransportResponse } from '../http/transport.js';
import type { CommandChannel } from './command-channel.js';
import type { Received } from './received.js';
import type { ServiceClient } from './service-client.js';

/** Pauses between attempts to open a stream, milliseconds. */
const openPausesMs = [100, 250, 500, 1_000, 2_000];

/** An open stream, read up to and including its start event. */
export interface OpenStream {
  pid: number;
  events: AsyncIterator<{ event?: CommandSessionEvent }>;
  /** Closes the connection; a command without session ends with it. */
  close(): void;
}

/** A start as the service client takes it. */
type StartInit = Parameters<ServiceClient['start']>[0];

/** What to open. */
export type StreamTarget = (
  | {
      kind: 'start';
      request: StartInit;
      timeoutMs: number | undefined;
      /** The session's name was made for this start, so that none can run by it yet. */
      isFresh: boolean;
    }
  | { kind: 'attach'; session: string }
) & {
  /** Of a session: where it goes on. */
  received: Received | undefined;
};

/** Asks why a sandbox does not run; undefined when it runs. */
export type WhyNotRunning = (
  sandboxId: string,
  cause: Error,
  signal?: AbortSignal,
) => Promise<SandboxNotRunningError | undefined>;

/** Opens it, with the repeats that are safe. */
export async function openStream(
  channel: CommandChannel,
  target: StreamTarget,
  whyNotRunning: WhyNotRunning,
  signal: AbortSignal | undefined,
): Promise<OpenStream> {
  const what = target.kind === 'start' ? 'exec' : 'attach';
  const isSession = target.kind === 'attach' || target.request.sessionUuid !== undefined;
  for (let attempt = 0, reauthenticated = false; ; ) {
    const authorized = await channel.authorize(signal);
    try {
      return await openOnce(authorized, target, signal);
    } catch (cause) {
      const error = channel.translate(what, cause, signal);
      const { wasRefused, isStreamLoss } = channel.modules.errors;
      if (error instanceof AuthenticationError && !reauthenticated) {
        reauthenticated = true;
        channel.refuse(authorized.entry);
        continue;
      }
      const refused = wasRefused(error);
      // A 404 of the gateway is a sandbox that is not there; Connect calls that `unimplemented`.
      const gone = error instanceof NotFoundError || (error instanceof NotBuiltError && refused);
      if (gone || refused || error instanceof ConnectionError) {
        const reason = await whyNotRunning(channel.sandboxId, error, signal);
        if (reason) throw reason;
        if (gone && target.kind === 'start') {
          throw new SandboxNotRunningError(
            `sandbox ${channel.sandboxId} is not on its node any more`,
            { code: 'SANDBOX_NOT_RUNNING', status: 404, cause: error },
            undefined,
            undefined,
          );
        }
      }
      const passing =
        wasNeverSent(error) ||
        (refused && error instanceof ConnectionError) ||
        (isSession && isStreamLoss(error));
      const wait = openPausesMs[attempt++];
      if (!passing || wait === undefined) throw error;
      await pause(wait, signal);
    }
  }
}

async function openOnce(
  authorized: Awaited<ReturnType<CommandChannel['authorize']>>,
  target: StreamTarget,
  signal: AbortSignal | undefined,
): Promise<OpenStream> {
  const controller = new AbortController();
  const forward = () => controller.abort(signal?.reason);
  if (signal?.aborted) forward();
  signal?.addEventListener('abort', forward, { once: true });
  const close = () => {
    signal?.removeEventListener('abort', forward);
    controller.abort(new SandlotError('the stream was closed', { code: 'CLOSED' }));
  };
  try {
    let position: string | undefined;
    const options = {
      headers: { ...authorized.headers },
      signal: controller.signal,
      onHead: (answer: TransportResponse) => {
        position = answer.header(positionHeader);
      },
    };
    if (target.received) options.headers[attachmentHeader] = target.received.attachment;
    let stream: AsyncIterable<{ event?: CommandSessionEvent }>;
    if (target.kind === 'start') {
      // The deadline goes as a header only: the server ends the command and says so. Were it given
      // to the library, this side would cut the stream at the same moment and lose that answer.
      if (target.timeoutMs !== undefined) {
        options.headers['connect-timeout-ms'] = String(Math.max(1, Math.round(target.timeoutMs)));
      }
      stream = authorized.client.start(target.request, options);
    } else {
      stream = authorized.client.connect(
        { session: { selector: { case: 'sessionUuid', value: target.session } } },
        options,
      );
    }
    const events = stream[Symbol.asyncIterator]();
    for (;;) {
      const next = await events.next();
      if (next.done) {
        throw new ConnectionError('the stream ended before the command was started', {
          code: 'STREAM_ENDED',
        });
      }
      const event = next.value.event?.event;
      if (event?.case === 'start') {
        const isFresh = target.kind === 'start' && target.isFresh;
        if (target.received && !target.received.begin(position, isFresh)) {
          close();
          // Once at most: it has been told not to confirm. By its name it begins where this one did.
          return await openOnce(authorized, target, signal);
        }
        return { pid: event.value.pid, events, close };
      }
    }
  } catch (error) {
    close();
    throw error;
  }
}
