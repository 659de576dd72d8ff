/** Requests to a node agent's unix socket, as the control plane sends them. Used by `TestNode`. */
import { type IncomingMessage, request } from 'node:http';
import type { Readable } from 'node:stream';

/** Answer of a request, its body read. */
export interface SocketAnswer {
  status: number;
  text: string;
}

/** Sends one request over the socket. A stream as body is sent as an archive. */
export function askSocket(
  socketPath: string,
  method: string,
  path: string,
  body?: unknown,
  timeoutMs = 30_000,
): Promise<SocketAnswer> {
  return new Promise((resolve, reject) => {
    const isStream = typeof (body as Readable | undefined)?.pipe === 'function';
    const sent = request({
      socketPath,
      method,
      path,
      agent: false,
      headers:
        body === undefined
          ? {}
          : { 'content-type': isStream ? 'application/octet-stream' : 'application/json' },
    });
    sent.setTimeout(timeoutMs, () =>
      sent.destroy(new Error(`${method} ${path}: no answer in ${timeoutMs} ms`)),
    );
    sent.on('error', reject);
    sent.on('response', (answer: IncomingMessage) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('error', reject);
      answer.on('end', () =>
        resolve({ status: answer.statusCode ?? 0, text: Buffer.concat(chunks).toString() }),
      );
    });
    if (isStream) (body as Readable).on('error', reject).pipe(sent);
    else sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
