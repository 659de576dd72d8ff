/** One exec as the host sees it: its events. Made by `GuestClient.exec` and `.attach`. */
import type { ClientHttp2Stream } from 'node:http2';
import { constants } from 'node:http2';
import { type ExecEnd, ExecFrame, type ExecStarted } from '@sandlot/protocol';
import { GuestLeftError, GuestUnreachableError } from './channel.js';
import { FrameReader } from './frames.js';

/** What an exec says, in order: `start`, output, `end`. */
export type ExecEvent =
  | { kind: 'start'; started: ExecStarted }
  | { kind: 'stdout' | 'stderr' | 'pty'; data: Buffer }
  | { kind: 'end'; end: ExecEnd };

const outputKinds = new Map<number, 'stdout' | 'stderr' | 'pty'>([
  [ExecFrame.stdout, 'stdout'],
  [ExecFrame.stderr, 'stderr'],
  [ExecFrame.pty, 'pty'],
]);

/** A started exec. Reading `events()` slowly makes the command wait, not us. */
export class ExecStream {
  constructor(private readonly stream: ClientHttp2Stream) {
    stream.on('error', () => {});
  }

  /**
   * All events, once. Leaving the loop early cancels the stream: an exec without a session id then
   * ends in the guest with its whole process tree.
   * @throws GuestUnreachableError when the stream breaks before `end`
   */
  async *events(): AsyncGenerator<ExecEvent> {
    const reader = new FrameReader();
    let ended = false;
    try {
      for await (const chunk of this.stream) {
        for (const frame of reader.push(chunk as Buffer)) {
          const output = outputKinds.get(frame.kind);
          if (output) yield { kind: output, data: frame.payload };
          else if (frame.kind === ExecFrame.start) yield { kind: 'start', started: parse(frame.payload) };
          else if (frame.kind === ExecFrame.end) {
            ended = true;
            yield { kind: 'end', end: parse(frame.payload) };
          }
        }
      }
    } catch (error) {
      if (!ended) throw broken(error);
    } finally {
      if (!ended) this.cancel();
      else if (!this.stream.writableEnded) this.stream.end();
    }
    if (!ended) throw broken(undefined);
  }

  /** Drops the stream. */
  cancel(): void {
    if (!this.stream.destroyed) this.stream.close(constants.NGHTTP2_CANCEL);
  }
}

function parse<T>(payload: Buffer): T {
  return JSON.parse(payload.toString()) as T;
}

function broken(cause: unknown): GuestUnreachableError {
  if (cause instanceof GuestLeftError) return cause;
  return new GuestUnreachableError('the connection to the sandbox broke before the command ended', { cause });
}
