/**
 * One HTTP request to a node agent over its unix socket, with a deadline and a limit for the
 * answer. Used by `node-client.ts` and `report-stream.ts` only.
 */
import { Agent, type IncomingMessage, request } from 'node:http';
import type { Readable } from 'node:stream';
import { clientKeepsIdleMs } from '@sandlot/protocol';
import { requestIdHeader } from '../request-id.js';
import { NodeRefusedError, NodeUnreachableError } from './node-error.js';

/** A request. */
export interface NodeRequest {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it comes, without being collected. */
  stream?: Readable;
  headers?: Record<string, string>;
  /** Time until the head of the answer. */
  timeoutMs: number;
  /** Ends the request. */
  signal?: AbortSignal;
}

/** Largest JSON answer: the list of all sandboxes of a node. */
const maxAnswerBytes = 64 * 1024 * 1024;

/** Idle connections kept to a node. */
const maxFreeSockets = 64;

/** Sends requests to one socket; its idle connections end with `close()`. */
export class NodeTransport {
  constructor(
    readonly socketPath: string,
    private readonly agent = new Agent({ keepAlive: true, maxFreeSockets, timeout: clientKeepsIdleMs }),
    private readonly requestId?: string,
  ) {}

  /** The same connections, for what one request of a client asks: its id goes along. */
  onBehalfOf(requestId: string): NodeTransport {
    return new NodeTransport(this.socketPath, this.agent, requestId);
  }

  /** Sends a request and reads the JSON of a good answer. */
  async json<T>(call: NodeRequest): Promise<T> {
    const answer = await this.open(call);
    const text = await readText(answer, call);
    try {
      return JSON.parse(text === '' ? '{}' : text) as T;
    } catch (cause) {
      throw new NodeUnreachableError(`${describe(call)}: the answer of the node is not JSON`, { cause });
    }
  }

  /** Sends a request and gives the body of a good answer as a stream. */
  async open(call: NodeRequest): Promise<IncomingMessage> {
    const answer = await this.#send(call);
    const status = answer.statusCode ?? 0;
    if (status >= 200 && status < 300) return answer;
    const text = await readText(answer, call);
    const { message, code } = errorOf(text);
    throw new NodeRefusedError(message || `${describe(call)} was answered with ${status}`, status, code);
  }

  /** Closes idle connections. */
  close(): void {
    this.agent.destroy();
  }

  #send(call: NodeRequest): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const body = call.body === undefined ? undefined : Buffer.from(JSON.stringify(call.body));
      const headers: Record<string, string | number> = { ...call.headers };
      if (this.requestId !== undefined) headers[requestIdHeader] = this.requestId;
      if (body !== undefined) {
        headers['content-type'] = 'application/json';
        headers['content-length'] = body.length;
      }
      const options = { socketPath: this.socketPath, method: call.method, path: call.path, headers };
      const sent = request({
        ...options,
        agent: this.agent,
        ...(call.signal ? { signal: call.signal } : {}),
      });
      const fail = (cause: unknown) => {
        clearTimeout(timer);
        reject(
          new NodeUnreachableError(`${describe(call)}: the node cannot be reached at ${this.socketPath}`, {
            cause,
          }),
        );
      };
      const timer = setTimeout(
        () => sent.destroy(new Error(`no answer within ${call.timeoutMs} ms`)),
        call.timeoutMs,
      );
      sent.once('error', fail);
      sent.once('response', (answer) => {
        clearTimeout(timer);
        sent.off('error', fail);
        // The body's reader sees a broken connection as an error of the answer.
        sent.on('error', () => undefined);
        resolve(answer);
      });
      if (call.stream === undefined) sent.end(body);
      else {
        call.stream.once('error', (error) => sent.destroy(error));
        call.stream.once('close', () => {
          if (!call.stream?.readableEnded) sent.destroy(new Error('the client went away during its upload'));
        });
        call.stream.pipe(sent);
        // What the node no longer reads is not wanted; reading it lets the client see the answer.
        sent.once('close', () => call.stream?.resume());
      }
    });
  }
}

async function readText(answer: IncomingMessage, call: NodeRequest): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  const timer = setTimeout(() => answer.destroy(new Error('the answer took too long')), call.timeoutMs);
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > maxAnswerBytes) throw new Error(`the answer is larger than ${maxAnswerBytes} bytes`);
      chunks.push(chunk);
    }
  } catch (cause) {
    throw new NodeUnreachableError(`${describe(call)}: the answer of the node broke off`, { cause });
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function errorOf(text: string): { message: string; code: string } {
  try {
    const body = JSON.parse(text) as Record<string, unknown>;
    return { message: String(body['message'] ?? body['detail'] ?? ''), code: String(body['code'] ?? '') };
  } catch {
    return { message: text.slice(0, 500), code: '' };
  }
}

function describe(call: NodeRequest): string {
  return `${call.method} ${call.path.split('?')[0]}`;
}
