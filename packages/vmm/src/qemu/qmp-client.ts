/**
 * Client of QEMU's machine protocol (QMP) on a unix socket: commands with a deadline, events, one
 * connection. Used by the QEMU driver. https://www.qemu.org/docs/master/interop/qmp-spec.html
 */
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { LineFramer } from './line-framer.js';

/** An event that QEMU sent. */
export interface QmpEvent {
  event: string;
  data: Record<string, unknown>;
}

/** QEMU refused a command. */
export class QmpCommandError extends Error {
  override name = 'QmpCommandError';
  constructor(
    readonly command: string,
    readonly description: string,
  ) {
    super(`QEMU refused '${command}': ${description}`);
  }
}

/** The connection is closed, or an answer did not come in time. */
export class QmpConnectionError extends Error {
  override name = 'QmpConnectionError';
}

interface Pending {
  command: string;
  resolve(value: unknown): void;
  reject(error: Error): void;
  timer: NodeJS.Timeout;
}

/** Answers can be long lists, but never this long; a broken peer must not fill our memory. */
const maxLineBytes = 4 * 1024 * 1024;
const maxEarlyEvents = 64;

/** One connection. Answers come in the order of commands. */
export class QmpClient {
  readonly #socket: net.Socket;
  readonly #framer = new LineFramer(maxLineBytes);
  readonly #pending = new Map<number, Pending>();
  readonly #listeners = new Set<(event: QmpEvent) => void>();
  /** Events from before the first listener. */
  #early: QmpEvent[] = [];
  #nextId = 1;
  #closed = false;
  #greet: (() => void) | undefined;
  /** Resolves when the connection is closed, by whichever side. */
  readonly closed: Promise<void>;

  private constructor(socket: net.Socket) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        this.#fail(new QmpConnectionError('the QMP connection was closed'));
        resolve();
      });
    });
    socket.on('error', () => {
      // 'close' follows and fails what is pending.
    });
    socket.on('data', (chunk) => this.#receive(chunk));
  }

  /**
   * Connects as soon as QEMU listens, and negotiates. Tries until `timeoutMs` has passed or `signal`
   * aborts, then throws {@link QmpConnectionError}.
   */
  static async connect(path: string, timeoutMs: number, signal?: AbortSignal): Promise<QmpClient> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      signal?.throwIfAborted();
      const socket = await tryConnect(path);
      if (socket instanceof net.Socket) {
        const client = new QmpClient(socket);
        try {
          await client.#negotiate(Math.max(1, deadline - performance.now()), signal);
          return client;
        } catch (error) {
          client.close();
          throw error;
        }
      }
      if (performance.now() > deadline) {
        throw new QmpConnectionError(`QEMU does not answer on ${path}`, { cause: socket });
      }
      await sleep(1);
    }
  }

  async #negotiate(timeoutMs: number, signal?: AbortSignal): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    let onAbort: (() => void) | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        this.#greet = resolve;
        timer = setTimeout(() => reject(new QmpConnectionError('QEMU sent no greeting')), timeoutMs);
        onAbort = () => reject(signal!.reason);
        signal?.addEventListener('abort', onAbort, { once: true });
        void this.closed.then(() => reject(new QmpConnectionError('QEMU closed the connection')));
      });
    } finally {
      clearTimeout(timer);
      if (onAbort) signal?.removeEventListener('abort', onAbort);
    }
    await this.execute('qmp_capabilities', undefined, timeoutMs);
  }

  /**
   * Runs one command and gives its result. Throws {@link QmpCommandError} when QEMU refuses,
   * {@link QmpConnectionError} when the connection ends or no answer came within `timeoutMs`.
   */
  execute<T = unknown>(command: string, args?: Record<string, unknown>, timeoutMs = 10_000): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#closed) {
        reject(new QmpConnectionError(`the QMP connection is closed; '${command}' was not sent`));
        return;
      }
      const id = this.#nextId++;
      const timer = setTimeout(() => {
        this.#pending.delete(id);
        reject(new QmpConnectionError(`QEMU did not answer '${command}' within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#pending.set(id, { command, resolve: resolve as (value: unknown) => void, reject, timer });
      this.#socket.write(
        `${JSON.stringify(args === undefined ? { execute: command, id } : { execute: command, arguments: args, id })}\n`,
      );
    });
  }

  /** Calls `listener` with every event from now on; the first listener also gets those before it. Returns a function that stops it. */
  onEvent(listener: (event: QmpEvent) => void): () => void {
    this.#listeners.add(listener);
    for (const event of this.#early.splice(0)) listener(event);
    return () => this.#listeners.delete(listener);
  }

  /** Closes the connection. Idempotent. */
  close(): void {
    this.#socket.destroy();
    this.#fail(new QmpConnectionError('we closed the QMP connection'));
  }

  #receive(chunk: Buffer): void {
    try {
      for (const line of this.#framer.push(chunk)) if (line !== '') this.#handle(JSON.parse(line));
    } catch (error) {
      this.#socket.destroy();
      this.#fail(new QmpConnectionError('QEMU sent what is not QMP', { cause: error }));
    }
  }

  #handle(message: Record<string, unknown>): void {
    if (typeof message['event'] === 'string') {
      const event = { event: message['event'], data: (message['data'] ?? {}) as Record<string, unknown> };
      if (this.#listeners.size === 0 && this.#early.length < maxEarlyEvents) this.#early.push(event);
      for (const listener of [...this.#listeners]) listener(event);
    } else if ('QMP' in message) {
      this.#greet?.();
    } else {
      const pending = this.#pending.get(message['id'] as number);
      if (!pending) return;
      this.#pending.delete(message['id'] as number);
      clearTimeout(pending.timer);
      const error = message['error'] as { desc?: string } | undefined;
      if (error) pending.reject(new QmpCommandError(pending.command, error.desc ?? 'no reason given'));
      else pending.resolve(message['return']);
    }
  }

  #fail(error: QmpConnectionError): void {
    this.#closed = true;
    for (const pending of this.#pending.values()) {
      clearTimeout(pending.timer);
      pending.reject(error);
    }
    this.#pending.clear();
  }
}

function tryConnect(path: string): Promise<net.Socket | Error> {
  return new Promise((resolve) => {
    const socket = net.connect(path);
    socket.once('error', resolve);
    socket.once('connect', () => {
      socket.removeListener('error', resolve);
      resolve(socket);
    });
  });
}
