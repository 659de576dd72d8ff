/**
 * The smallest host side of the guest channel: RESET, SYNC, one HTTP/2 request. For the conformance
 * suite, which must know that a guest lives; the real client is the node agent's.
 */
import { randomBytes } from 'node:crypto';
import http2 from 'node:http2';
import net from 'node:net';
import type { GuestPorts } from '../driver.js';

const attempts = 60;
/** First wait for SYNC; doubled with each try, as the node agent's channel does. */
const firstAttemptMs = 1000;
const longestAttemptMs = 30_000;

/** One request to the guest agent; gives status and body. Tries with new nonces, as the channel asks for. */
export async function callGuest(
  ports: GuestPorts,
  method: string,
  path: string,
  body?: string | Buffer,
  signal?: AbortSignal,
): Promise<{ status: number; body: string }> {
  let problem: unknown;
  let timeouts = 0;
  for (let attempt = 0; attempt < attempts; attempt++) {
    signal?.throwIfAborted();
    try {
      const channel = await openChannel(ports, Math.min(longestAttemptMs, firstAttemptMs * 2 ** timeouts));
      try {
        return await request(channel.session, method, path, body);
      } finally {
        channel.close();
      }
    } catch (error) {
      problem = error;
      if (error instanceof NoSyncError) timeouts++;
      // A refused connection fails at once; do not spin.
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  throw new Error(`the guest does not answer on ${ports.data}`, { cause: problem });
}

class NoSyncError extends Error {
  override name = 'NoSyncError';
}

function openChannel(
  ports: GuestPorts,
  timeoutMs: number,
): Promise<{ session: http2.ClientHttp2Session; close(): void }> {
  return new Promise((resolve, reject) => {
    const nonce = randomBytes(16).toString('hex');
    const wanted = Buffer.from(`SYNC ${nonce}\n`);
    const ctl = net.connect(ports.ctl);
    const data = net.connect(ports.data);
    const fail = (error: Error): void => {
      clearTimeout(timer);
      ctl.destroy();
      data.destroy();
      reject(error);
    };
    const timer = setTimeout(() => fail(new NoSyncError('no SYNC')), timeoutMs);
    ctl.on('error', fail);
    data.on('error', fail);
    let seen = Buffer.alloc(0);
    const onData = (chunk: Buffer): void => {
      seen = Buffer.concat([seen, chunk]);
      const at = seen.indexOf(wanted);
      if (at < 0) return;
      clearTimeout(timer);
      data.off('data', onData);
      data.pause();
      const rest = seen.subarray(at + wanted.length);
      if (rest.length > 0) data.unshift(rest);
      const session = http2.connect('http://guest', {
        createConnection: () => data,
        settings: { initialWindowSize: 262_144, maxFrameSize: 32_759, enablePush: false },
      });
      session.on('error', () => {
        // The request on it fails with the same.
      });
      resolve({
        session,
        close() {
          session.destroy();
          ctl.destroy();
          data.destroy();
        },
      });
    };
    data.on('data', onData);
    ctl.write(`\nRESET ${nonce}\n`);
  });
}

function request(
  session: http2.ClientHttp2Session,
  method: string,
  path: string,
  body: string | Buffer | undefined,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ':method': method, ':path': path });
    const timer = setTimeout(() => stream.close(http2.constants.NGHTTP2_CANCEL), 30_000);
    let status = 0;
    let text = '';
    stream.setEncoding('utf8');
    stream.on('response', (headers) => {
      status = Number(headers[':status']);
    });
    stream.on('data', (chunk: string) => {
      text += chunk;
    });
    stream.on('error', reject);
    stream.on('close', () => {
      clearTimeout(timer);
      if (status === 0) reject(new Error('the stream closed without an answer'));
      else resolve({ status, body: text });
    });
    stream.end(body);
  });
}
