/** One small request to a daemon of this machine, over its unix socket or over TCP: health and shutdown. */
import http from 'node:http';
import https from 'node:https';

/**
 * Status and body; rejects when nobody listens or nothing comes in time. Whose certificate it is does not
 * matter: nothing is told that is not for everybody, and the daemon's certificate has another name than its address.
 */
export function requestDaemon(
  target: { socketPath: string } | { url: string },
  method: 'GET' | 'POST',
  route: string,
  body?: unknown,
  timeoutMs = 3_000,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const url = 'url' in target ? new URL(route, target.url) : new URL(route, 'http://localhost');
    const request = (url.protocol === 'https:' ? https : http).request(
      url,
      {
        method,
        agent: false,
        ...(url.protocol === 'https:' ? { rejectUnauthorized: false } : {}),
        timeout: timeoutMs,
        headers:
          text === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) },
        ...('socketPath' in target ? { socketPath: target.socketPath } : {}),
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }),
        );
        response.on('error', reject);
      },
    );
    request.on('timeout', () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    request.on('error', reject);
    request.end(text);
  });
}

/** True when `GET /healthz` is answered with 200. */
export async function isHealthy(target: { socketPath: string } | { url: string }): Promise<boolean> {
  try {
    return (await requestDaemon(target, 'GET', '/healthz')).status === 200;
  } catch {
    return false;
  }
}
