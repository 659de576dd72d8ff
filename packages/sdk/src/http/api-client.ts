/**
 * Calls `/api/v1`: adds the key, encodes and decodes JSON, retries, maps errors. Every resource of
 * the client (`resources/`) is written on it.
 */
import { ConnectionError } from '../errors.js';
import { withDeadline } from './deadline.js';
import { errorFromAnswer } from './error-answer.js';
import { readJsonLines } from './ndjson.js';
import { readLimited } from './read-limited.js';
import { type RetryPolicy, withRetries } from './retry.js';
import type { Transport, TransportResponse } from './transport.js';

/** Largest JSON answer that is read. */
const answerMaxBytes = 64 * 1024 * 1024;

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, its retries and its pauses. */
  signal?: AbortSignal | undefined;
  /** Time for one attempt, milliseconds; the client's default otherwise. */
  timeoutMs?: number | undefined;
}

/** One call of the API. */
export interface ApiCall extends CallOptions {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Below `/api/v1`, already encoded. */
  path: string;
  query?: Record<string, string | number | boolean | readonly string[] | undefined>;
  body?: unknown;
  /** May be repeated after an unclear failure; by default everything but POST and PATCH. */
  idempotent?: boolean;
}

/** Where and as whom. */
export interface ApiClientOptions {
  /** Without trailing slash and without `/api/v1`. */
  baseUrl: string;
  apiKey: string | undefined;
  transport: Transport;
  timeoutMs: number;
  retry: RetryPolicy;
  userAgent: string;
}

/** A caller of the API. */
export class ApiClient {
  constructor(readonly options: ApiClientOptions) {}

  /** A call with a JSON answer. */
  async call<T>(call: ApiCall): Promise<T> {
    const idempotent = call.idempotent ?? (call.method !== 'POST' && call.method !== 'PATCH');
    const what = `${call.method} ${call.path}`;
    return withRetries(this.options.retry, idempotent, call.signal, () =>
      withDeadline(what, call.timeoutMs ?? this.options.timeoutMs, call.signal, async (signal) => {
        const answer = await this.#send(call, signal);
        if (answer.status >= 400) throw await errorFromAnswer(what, answer);
        const bytes = await readLimited(answer.body, answerMaxBytes);
        if (bytes.byteLength === 0) return {} as T;
        try {
          return JSON.parse(new TextDecoder().decode(bytes)) as T;
        } catch (cause) {
          throw new ConnectionError(
            `${what}: the answer is not JSON; is ${this.options.baseUrl} a Sandlot server?`,
            {
              status: answer.status,
              code: 'BAD_ANSWER',
              cause,
            },
          );
        }
      }),
    );
  }

  /** A call whose answer is a stream of JSON lines. Not repeated once lines have come. */
  async *lines(
    call: ApiCall & { upload?: { body: AsyncIterable<Uint8Array>; contentLength?: number | undefined } },
  ): AsyncGenerator<unknown> {
    const what = `${call.method} ${call.path}`;
    const answer = await withRetries(this.options.retry, call.idempotent ?? false, call.signal, async () => {
      const got = await this.#send(call, call.signal, call.upload);
      if (got.status >= 400) throw await errorFromAnswer(what, got);
      return got;
    });
    yield* readJsonLines(answer.body);
  }

  #send(
    call: ApiCall,
    signal: AbortSignal | undefined,
    upload?: { body: AsyncIterable<Uint8Array>; contentLength?: number | undefined },
  ): Promise<TransportResponse> {
    const headers: Record<string, string> = {
      accept: 'application/json',
      'user-agent': this.options.userAgent,
    };
    if (this.options.apiKey) headers['authorization'] = `Bearer ${this.options.apiKey}`;
    if (upload) headers['content-type'] = 'application/octet-stream';
    else if (call.body !== undefined) headers['content-type'] = 'application/json';
    return this.options.transport.send({
      method: call.method,
      url: `${this.options.baseUrl}/api/v1${call.path}${queryString(call.query)}`,
      headers,
      body:
        upload?.body ??
        (call.body === undefined ? undefined : new TextEncoder().encode(JSON.stringify(call.body))),
      contentLength: upload?.contentLength,
      signal,
      idleTimeoutMs: Math.max(call.timeoutMs ?? this.options.timeoutMs, 1_000),
    });
  }
}

/** `?a=1&b=2`, repeating the name for each element of a list; empty when there is nothing. */
export function queryString(query: ApiCall['query']): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) parameters.append(name, String(one));
  }
  const text = parameters.toString();
  return text === '' ? '' : `?${text}`;
}
