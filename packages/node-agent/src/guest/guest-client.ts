/** Typed calls to one guest agent; the forms are in protocol's `guest-api.ts`. Used by sandbox steps and the gateway. */
import type { ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import { constants } from 'node:http2';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  type ExecAttachment,
  ExecFrame,
  type ExecInfo,
  type ExecStart,
  type FileStat,
  type FileWritten,
  type GuestError,
  type GuestFixed,
  type GuestFixups,
  type GuestHealth,
  type GuestInit,
  type GuestInitResult,
  type GuestView,
  type GuestViewMade,
} from '@sandlot/protocol';
import type { GuestPorts } from '@sandlot/vmm';
import { GuestChannel, GuestLeftError, GuestUnreachableError } from './channel.js';
import { collect } from './collect.js';
import { ExecStream } from './exec-stream.js';
import { encodeFrame } from './frames.js';

/** The guest refused a call: `code` is an errno name. */
export class GuestCallError extends Error {
  override name = 'GuestCallError';
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** A file that is being read. */
export interface GuestFile {
  /** Size of the whole file, bytes. */
  size: number;
  /** Where the window begins. */
  offset: number;
  body: Readable;
}

/** How long a small call may take, ms. A guest under load on a software-emulated CPU is slow, not dead. */
const callTimeoutMs = 30_000;
/** How long the making of a view may take, ms: modules are loaded, a network is made. */
const viewTimeoutMs = 120_000;
/** Largest JSON answer that is read, bytes. */
const answerLimitBytes = 16 * 1024 * 1024;

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  stream: ClientHttp2Stream;
}

/** All calls to the guest agent of one machine. */
export class GuestClient {
  readonly channel: GuestChannel;

  constructor(ports: GuestPorts) {
    this.channel = new GuestChannel(ports);
  }

  /** Connects if needed; rejects with {@link GuestUnreachableError} after `deadlineMs`. */
  async connect(deadlineMs: number, signal?: AbortSignal): Promise<void> {
    await this.channel.session(deadlineMs, signal);
  }

  /** For good. Calls that wait for an answer fail, with `reason` if there is one. */
  close(reason?: GuestUnreachableError): void {
    this.channel.close(reason);
  }

  /** The next call connects again. */
  disconnect(): void {
    this.channel.disconnect();
  }

  health(signal?: AbortSignal): Promise<GuestHealth> {
    return this.#json('GET', '/health', undefined, signal);
  }

  warm(signal?: AbortSignal): Promise<void> {
    return this.#json('POST', '/warm', undefined, signal);
  }

  init(init: GuestInit, signal?: AbortSignal): Promise<GuestInitResult> {
    return this.#json('POST', '/init', init, signal, 120_000);
  }

  /** Of a machine restored from a snapshot. May be repeated. */
  fixups(fixups: GuestFixups, signal?: AbortSignal): Promise<GuestFixed> {
    return this.#json('POST', '/fixups', fixups, signal);
  }

  /** Brings its files to its disk and holds its root file system still, a minute at most. */
  freeze(): Promise<void> {
    return this.#json('POST', '/freeze');
  }

  /** Lets it go on; harmless when it does. */
  thaw(): Promise<void> {
    return this.#json('POST', '/thaw');
  }

  startCommand(spec: ExecStart): Promise<{ pid: number }> {
    return this.#json('POST', '/start-command', spec);
  }

  /** Makes a view before its first command needs it. Throws {@link GuestCallError} 400 for a path that does not exist. */
  makeView(view: GuestView, signal?: AbortSignal): Promise<GuestViewMade> {
    return this.#json('POST', '/views', view, signal, viewTimeoutMs);
  }

  /** Starts a command; its stream carries everything else. */
  async exec(spec: ExecStart, signal?: AbortSignal, attachment: ExecAttachment = {}): Promise<ExecStream> {
    const stream = await this.#open('POST', `/exec?${queryOf(attachment)}`, signal);
    stream.write(encodeFrame(ExecFrame.spec, JSON.stringify(spec)));
    if (!spec.stdin && !spec.pty) stream.end();
    const answer = await this.#answer(stream);
    return new ExecStream(answer.stream);
  }

  /** Attaches to a session, running or retained. Throws {@link GuestCallError} 404 for an unknown one. */
  async attach(execId: string, signal?: AbortSignal, attachment: ExecAttachment = {}): Promise<ExecStream> {
    const path = `/exec/${encodeURIComponent(execId)}/attach?${queryOf(attachment)}`;
    const stream = await this.#open('POST', path, signal);
    stream.end();
    return new ExecStream((await this.#answer(stream)).stream);
  }

  /** Tells what a client that confirms has got. */
  confirmReceived(execId: string, attachment: ExecAttachment): Promise<void> {
    return this.#json('POST', `/exec/${encodeURIComponent(execId)}/received?${queryOf(attachment)}`);
  }

  listExecs(): Promise<{ sessions: ExecInfo[] }> {
    return this.#json('GET', '/exec');
  }

  async sendInput(
    execId: string,
    bytes: Uint8Array,
    options: { inputId?: string; eof?: boolean },
  ): Promise<void> {
    const query = new URLSearchParams();
    if (options.inputId) query.set('inputId', options.inputId);
    if (options.eof) query.set('eof', '1');
    const stream = await this.#open('POST', `/exec/${encodeURIComponent(execId)}/input?${query}`);
    stream.end(bytes);
    await this.#readJson(await this.#answer(stream, callTimeoutMs));
  }

  sendSignal(execId: string, signal: number, signalId?: string): Promise<void> {
    const query = new URLSearchParams({ signal: String(signal) });
    if (signalId) query.set('signalId', signalId);
    return this.#json('POST', `/exec/${encodeURIComponent(execId)}/signal?${query}`);
  }

  resize(execId: string, size: { cols: number; rows: number }): Promise<void> {
    return this.#json(
      'POST',
      `/exec/${encodeURIComponent(execId)}/resize?cols=${size.cols}&rows=${size.rows}`,
    );
  }

  writeFile(
    path: string,
    body: Readable,
    options: { mode?: number; signal?: AbortSignal } = {},
  ): Promise<FileWritten> {
    const query = new URLSearchParams({ path });
    if (options.mode !== undefined) query.set('mode', options.mode.toString(8).padStart(4, '0'));
    return this.#upload(`/files?${query}`, body, options.signal);
  }

  writeTar(path: string, body: Readable, signal?: AbortSignal): Promise<FileWritten> {
    return this.#upload(`/tar?${new URLSearchParams({ path })}`, body, signal);
  }

  async readFile(
    path: string,
    window: { offset?: number; length?: number } = {},
    signal?: AbortSignal,
  ): Promise<GuestFile> {
    const query = new URLSearchParams({ path });
    if (window.offset !== undefined) query.set('offset', String(window.offset));
    if (window.length !== undefined) query.set('length', String(window.length));
    const stream = await this.#open('GET', `/files?${query}`, signal);
    stream.end();
    const { headers, stream: body } = await this.#answer(stream, callTimeoutMs);
    return {
      size: Number(headers['sandlot-file-size'] ?? 0),
      offset: Number(headers['sandlot-file-offset'] ?? 0),
      body,
    };
  }

  async readTar(path: string, signal?: AbortSignal): Promise<Readable> {
    const stream = await this.#open('GET', `/tar?${new URLSearchParams({ path })}`, signal);
    stream.end();
    return (await this.#answer(stream, callTimeoutMs)).stream;
  }

  stat(path: string): Promise<FileStat> {
    return this.#json('GET', `/stat?${new URLSearchParams({ path })}`);
  }

  async #upload(path: string, body: Readable, signal?: AbortSignal): Promise<FileWritten> {
    const stream = await this.#open('PUT', path, signal);
    // A refusal (a directory, a full disk) may come while we still send, and then the pipe breaks: the answer decides.
    pipeline(body, stream, signal ? { signal } : {}).catch(() => {});
    try {
      return await this.#readJson(await this.#answer(stream));
    } finally {
      if (!stream.destroyed)
        stream.close(stream.writableFinished ? constants.NGHTTP2_NO_ERROR : constants.NGHTTP2_CANCEL);
    }
  }

  async #json<T>(
    method: string,
    path: string,
    body?: unknown,
    signal?: AbortSignal,
    timeoutMs = callTimeoutMs,
  ): Promise<T> {
    const stream = await this.#open(method, path, signal);
    stream.end(body === undefined ? undefined : JSON.stringify(body));
    return this.#readJson(await this.#answer(stream, timeoutMs));
  }

  async #open(method: string, path: string, signal?: AbortSignal): Promise<ClientHttp2Stream> {
    const session = await this.channel.session(undefined, signal);
    const stream = session.request(
      { ':method': method, ':path': path },
      { endStream: false, ...(signal ? { signal } : {}) },
    );
    stream.on('error', () => {});
    return stream;
  }

  #answer(stream: ClientHttp2Stream, timeoutMs?: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const timer = timeoutMs
        ? setTimeout(() => {
            stream.close(constants.NGHTTP2_CANCEL);
            settle(new GuestUnreachableError(`the guest agent did not answer within ${timeoutMs} ms`));
          }, timeoutMs)
        : undefined;
      const settle = (error: Error | undefined, answer?: Answer) => {
        clearTimeout(timer);
        stream.off('response', onResponse);
        stream.off('close', onClose);
        stream.off('error', onError);
        if (answer) resolve(answer);
        else reject(error);
      };
      const onResponse = (headers: IncomingHttpHeaders & { ':status'?: number }) => {
        const status = headers[':status'] ?? 0;
        const answer = { status, headers, stream };
        if (status < 400) {
          settle(undefined, answer);
          return;
        }
        readLimited(stream).then(
          (text) => settle(callError(status, text)),
          (cause: unknown) => settle(new GuestUnreachableError('the guest broke off an answer', { cause })),
        );
      };
      const onError = (cause: Error) =>
        settle(
          cause.name === 'AbortError' || cause instanceof GuestLeftError
            ? cause
            : new GuestUnreachableError('the connection to the guest broke', { cause }),
        );
      const onClose = () => settle(new GuestUnreachableError('the guest closed the call without an answer'));
      stream.once('response', onResponse);
      stream.once('error', onError);
      stream.once('close', onClose);
    });
  }

  async #readJson<T>(answer: Answer): Promise<T> {
    const text = await readLimited(answer.stream);
    return (text === '' ? {} : JSON.parse(text)) as T;
  }
}

function queryOf(attachment: ExecAttachment): URLSearchParams {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(attachment)) query.set(name, String(value));
  return query;
}

async function readLimited(stream: ClientHttp2Stream): Promise<string> {
  const endless = () => new GuestUnreachableError('the guest sent an answer without end');
  return (await collect(stream, answerLimitBytes, endless)).toString();
}

function callError(status: number, text: string): GuestCallError {
  try {
    const body = JSON.parse(text) as Partial<GuestError>;
    return new GuestCallError(status, body.code ?? 'EIO', body.message ?? text);
  } catch {
    return new GuestCallError(status, 'EIO', text || `the guest answered ${status}`);
  }
}
