/**
 * A command that runs in a sandbox: its output as async iterables, its input, signals, terminal
 * size and end. Made by {@link Sandbox.exec}.
 *
 * Output is read from the network only while somebody reads here, so that a slow reader slows the
 * command down instead of filling memory. Take `stdout`, `stderr` or `output` before `wait()`: what
 * nobody has taken when reading begins is dropped.
 */
import { randomUUID } from 'node:crypto';
import type { CommandSessionEvent } from '@sandlot/protocol';
import {
  AbortedError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  NotBuiltError,
  NotFoundError,
  type SandlotError,
} from '../errors.js';
import { pause } from '../http/retry.js';
import { ChunkQueue } from './chunk-queue.js';
import type { AuthorizedClient, CommandChannel } from './command-channel.js';
import { type OpenStream, openStream, type StreamTarget, type WhyNotRunning } from './event-stream.js';
import type { ExecResult, OutputEvent, SignalName } from './exec-types.js';
import type { Received } from './received.js';
import { signalName, signalNumber } from './signals.js';

/** Bytes of one message of input; the guest's frames are as large. */
const inputChunkBytes = 64 * 1024;
/** The server ends the tree within two seconds of the deadline; after this it is not waited for. */
const deadlineGraceMs = 15_000;
/** So often in a row a session is attached again without anything coming of it. */
const maxBarrenAttaches = 5;
/** Pause before the first of them; it doubles. */
const attachPauseMs = 100;
/** A stream that held for so long was a good one, also when the command printed nothing. */
const goodStreamMs = 5_000;
/** How often one message to the command is sent. */
const messageAttempts = 5;

/** How a process object is made; only {@link startProcess} and `attach` do. */
export interface ProcessOptions {
  channel: CommandChannel;
  opened: OpenStream;
  session: string | undefined;
  /** Of a session: what came in. */
  received: Received | undefined;
  terminal: boolean;
  signal: AbortSignal | undefined;
  whyNotRunning: WhyNotRunning;
  /** When the command is to be ended, on the clock of `performance.now()`. */
  deadline?: number | undefined;
}

/** A running or ended command. */
export class SandboxProcess {
  readonly #options: ProcessOptions;
  #stream: OpenStream;
  #stdout: ChunkQueue<Uint8Array> | undefined;
  #stderr: ChunkQueue<Uint8Array> | undefined;
  #output: ChunkQueue<OutputEvent> | undefined;
  #reading: Promise<ExecResult> | undefined;
  #input: Promise<void> = Promise.resolve();
  #confirming = false;
  /** Streams in a row that broke before anything came in. */
  #barren = 0;
  #openedAt = performance.now();
  #ended = false;
  #closed: Error | undefined;

  constructor(options: ProcessOptions) {
    this.#options = options;
    this.#stream = options.opened;
  }

  /** Process id in the sandbox; 0 when the command could not be run. */
  get pid(): number {
    return this.#stream.pid;
  }

  /** Id to attach by, when it was started with `session`. */
  get session(): string | undefined {
    return this.#options.session;
  }

  /** Bytes of standard output (of the terminal, when there is one). For one reader. */
  get stdout(): AsyncIterable<Uint8Array> {
    this.#stdout ??= new ChunkQueue(() => void this.#begin());
    return this.#stdout;
  }

  /** Bytes of standard error. For one reader. */
  get stderr(): AsyncIterable<Uint8Array> {
    this.#stderr ??= new ChunkQueue(() => void this.#begin());
    return this.#stderr;
  }

  /** All output in the order it came. For one reader. */
  get output(): AsyncIterable<OutputEvent> {
    this.#output ??= new ChunkQueue(() => void this.#begin());
    return this.#output;
  }

  /** Resolves when the command has ended; rejects when that cannot be known. */
  wait(): Promise<ExecResult> {
    return this.#begin();
  }

  /** Writes to standard input; resolves when the sandbox has taken it. Writes keep their order. */
  write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    return this.#queueInput(async () => {
      for (let at = 0; at < bytes.byteLength; at += inputChunkBytes) {
        await this.#sendInput(bytes.subarray(at, at + inputChunkBytes), false);
      }
    });
  }

  /** Ends standard input after what was written. */
  closeStdin(): Promise<void> {
    return this.#queueInput(() => this.#sendInput(new Uint8Array(0), true));
  }

  /** Sends a signal to the command and its children. One that comes after the end is ignored. */
  async signal(name: SignalName): Promise<void> {
    const signal = signalNumber(name);
    const signalUuid = randomUUID();
    await this.#control(`send ${name}`, ({ client, headers }) =>
      client.sendSignal(
        { session: this.#selector(), signal: signal as number, signalUuid },
        { headers, timeoutMs: 10_000 },
      ),
    );
  }

  /** Tells the terminal its new size. */
  async resize(size: { cols: number; rows: number }): Promise<void> {
    await this.#control('resize', ({ client, headers }) =>
      client.update({ session: this.#selector(), pty: { size } }, { headers, timeoutMs: 10_000 }),
    );
  }

  /**
   * Closes the stream. A command without session ends with it; one with session runs on. What
   * waits for the command fails with `reason`, or with an {@link AbortedError}.
   */
  close(reason?: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#closed = reason ?? new AbortedError('the process object was closed');
    this.#stream.close();
  }

  #begin(): Promise<ExecResult> {
    if (!this.#reading) {
      this.#reading = this.#read();
      // Whoever reads only the output learns of a failure there; wait() reports it again.
      this.#reading.catch(() => undefined);
    }
    return this.#reading;
  }

  async #read(): Promise<ExecResult> {
    try {
      for (;;) {
        try {
          const result = await this.#readStream();
          this.#finish(undefined);
          return result;
        } catch (cause) {
          if (this.#closed) throw this.#closed;
          const error = this.#options.channel.translate('exec', cause, this.#options.signal);
          // The server ends the command at its deadline and says so; a stream that breaks after that
          // moment, or a server that has not said so long after it, means the same.
          if (error instanceof DeadlineError || (error instanceof ConnectionError && this.#isLate(0))) {
            this.#finish(undefined);
            return timedOut();
          }
          const { session, received } = this.#options;
          if (!session || this.#ended || !this.#options.channel.modules.errors.isStreamLoss(error))
            throw error;
          this.#stream.close();
          await this.#reattach({ kind: 'attach', session, received }, error);
        }
      }
    } catch (error) {
      const final = await this.#explain(error as SandlotError);
      this.#finish(final);
      throw final;
    }
  }

  /** Opens the stream of a session again, unless that has been in vain too often. */
  async #reattach(target: StreamTarget, lost: SandlotError): Promise<void> {
    const { channel, whyNotRunning, signal } = this.#options;
    if (performance.now() - this.#openedAt >= goodStreamMs) this.#barren = 0;
    if (this.#barren >= maxBarrenAttaches) throw lost;
    await pause(attachPauseMs * 2 ** this.#barren++, signal);
    if (this.#closed) throw this.#closed;
    this.#stream = await openStream(channel, target, whyNotRunning, signal);
    this.#openedAt = performance.now();
    if (!this.#closed) return;
    this.#stream.close();
    throw this.#closed;
  }

  #isLate(graceMs: number): boolean {
    const { deadline } = this.#options;
    return deadline !== undefined && performance.now() >= deadline + graceMs;
  }

  async #readStream(): Promise<ExecResult> {
    for (;;) {
      const next = await this.#nextEvent();
      if (next.done) {
        throw new ConnectionError('the stream ended before the command did', { code: 'STREAM_ENDED' });
      }
      this.#barren = 0;
      const event = next.value.event?.event;
      if (event?.case === 'data') await this.#deliver(event.value);
      else if (event?.case === 'end') return resultOf(event.value);
    }
  }

  /** The next event; closes a stream whose server is silent long after the deadline. */
  async #nextEvent() {
    const { deadline } = this.#options;
    if (deadline === undefined) return this.#stream.events.next();
    const stream = this.#stream;
    const timer = setTimeout(() => stream.close(), deadline + deadlineGraceMs - performance.now());
    try {
      return await stream.events.next();
    } finally {
      clearTimeout(timer);
    }
  }

  async #deliver(data: Extract<CommandSessionEvent['event'], { case: 'data' }>['value']): Promise<void> {
    const { case: kind, value: bytes } = data.output;
    if (kind === undefined) return;
    this.#options.received?.add(kind, bytes.byteLength);
    void this.#confirm();
    const queue = kind === 'stderr' ? this.#stderr : this.#stdout;
    await queue?.push(bytes, bytes.byteLength);
    await this.#output?.push({ stream: kind, data: bytes }, bytes.byteLength);
  }

  /** Tells the server what came in, when that is much; without it the server sends no more. */
  async #confirm(): Promise<void> {
    const { session, received } = this.#options;
    if (!session || !received || this.#confirming) return;
    this.#confirming = true;
    const stream = this.#stream;
    try {
      while (received.mustConfirm && !this.#ended) {
        const query = `session=${encodeURIComponent(session)}&${received.confirmation()}`;
        await this.#send('confirm', ({ client, headers }) =>
          client.confirm(query, { headers, signal: this.#options.signal, timeoutMs: 10_000 }),
        );
      }
    } catch (error) {
      // An old server knows no confirmations, and waits for none.
      const isUnknown = error instanceof NotFoundError || error instanceof NotBuiltError;
      if (isUnknown && !received.wasTold) return;
      // A stream that is opened again tells the same by itself.
      if (!this.#ended && stream === this.#stream) stream.close();
    } finally {
      this.#confirming = false;
    }
  }

  /** A lost stream of a sandbox that has ended is that end, not a network failure. */
  async #explain(error: SandlotError): Promise<SandlotError> {
    if (error instanceof AbortedError || this.#options.signal?.aborted) return error;
    if (!(error instanceof ConnectionError) && !(error instanceof NotFoundError)) return error;
    return (await this.#options.whyNotRunning(this.#options.channel.sandboxId, error)) ?? error;
  }

  #finish(error: SandlotError | undefined): void {
    this.#ended = true;
    this.#stdout?.end(error);
    this.#stderr?.end(error);
    this.#output?.end(error);
    this.#stream.close();
  }

  #selector() {
    const { session } = this.#options;
    return session
      ? { selector: { case: 'sessionUuid' as const, value: session } }
      : { selector: { case: 'pid' as const, value: this.pid } };
  }

  #queueInput(work: () => Promise<void>): Promise<void> {
    const next = this.#input.then(work);
    // A failed write fails the ones behind it through its own promise, not as an unhandled one.
    this.#input = next;
    next.catch(() => undefined);
    return next;
  }

  async #sendInput(bytes: Uint8Array, closeStdin: boolean): Promise<void> {
    const inputUuid = randomUUID();
    const input = this.#options.terminal
      ? { input: { case: 'pty' as const, value: bytes } }
      : { input: { case: 'stdin' as const, value: bytes } };
    try {
      await this.#send('write', ({ client, headers }) =>
        client.sendInput(
          { session: this.#selector(), input, inputUuid, closeStdin },
          { headers, ...(this.#options.signal ? { signal: this.#options.signal } : {}) },
        ),
      );
    } catch (error) {
      if (!this.#ended) throw error;
      throw new ConflictError('the command has ended; nobody reads its input', {
        code: 'ENDED',
        cause: error,
      });
    }
  }

  async #control(what: string, work: (authorized: AuthorizedClient) => Promise<unknown>): Promise<void> {
    if (this.#ended) return;
    try {
      await this.#send(what, work);
    } catch (error) {
      // It ended between the look and the call.
      if (error instanceof NotFoundError || error instanceof ConflictError) return;
      throw error;
    }
  }

  /** A message to the command: repeated when its connection broke, as each carries an id or may be said twice. */
  async #send(what: string, work: (authorized: AuthorizedClient) => Promise<unknown>): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#options.channel.call(what, this.#options.signal, work);
        return;
      } catch (error) {
        if (this.#ended || !(error instanceof ConnectionError) || attempt >= messageAttempts) throw error;
        await pause(100 * 2 ** attempt, this.#options.signal);
      }
    }
  }
}

function resultOf(end: Extract<CommandSessionEvent['event'], { case: 'end' }>['value']): ExecResult {
  return {
    exitCode: end.exitCode,
    signal: end.signal === 0 ? undefined : signalName(end.signal),
    oomKilled: end.oomKilled,
    timedOut: false,
    droppedBytes: Number(end.droppedBytes),
    error: end.error || undefined,
  };
}

function timedOut(): ExecResult {
  // 124 as timeout(1) has it.
  return {
    exitCode: 124,
    signal: undefined,
    oomKilled: false,
    timedOut: true,
    droppedBytes: 0,
    error: undefined,
  };
}
