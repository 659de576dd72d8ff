/**
 * One HTTP request to a registry or where it redirects to: TLS unless plain HTTP is allowed for the host,
 * redirects followed by hand so that credentials never reach another host, and an end to every wait.
 * Called by the registry client only.
 */
import { errnoOf } from '../fault.js';
import { ImageError } from '../store.js';

const MAX_REDIRECTS = 5;
/** What a TLS client sees when the other side speaks plain HTTP. */
const NOT_TLS = new Set(['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER', 'ERR_SSL_PACKET_LENGTH_TOO_LONG']);

/** Which hosts may be spoken to without TLS. */
export class InsecurePolicy {
  private readonly hosts: Set<string>;

  constructor(hosts: string[]) {
    this.hosts = new Set(hosts.map((host) => host.toLowerCase()));
  }

  /** `host` is `name` or `name:port`. */
  allows(host: string): boolean {
    const lower = host.toLowerCase();
    const name = lower.replace(/:[0-9]+$/, '');
    return isLoopback(name) || this.hosts.has(lower) || this.hosts.has(name);
  }
}

function isLoopback(name: string): boolean {
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    name === '[::1]' ||
    /^127\.[0-9]+\.[0-9]+\.[0-9]+$/.test(name)
  );
}

/** A request. */
export interface TransportRequest {
  url: string;
  headers: Record<string, string>;
  /** Headers of the answer must come within this time. */
  silenceMs: number;
  signal: AbortSignal;
  policy: InsecurePolicy;
}

/** An answer, and what ends its transfer: `cancel` must be called unless the body was read to its end. */
export interface TransportResponse {
  response: Response;
  cancel(): void;
}

/** Sends a GET. Rejects with what `fetch` throws, or an `ImageError` for what another try cannot change. */
export async function send(request: TransportRequest): Promise<TransportResponse> {
  const abort = new AbortController();
  const giveUp = () => abort.abort(request.signal.reason);
  if (request.signal.aborted) giveUp();
  request.signal.addEventListener('abort', giveUp, { once: true });
  const timer = setTimeout(() => abort.abort(new SilenceError(request.silenceMs)), request.silenceMs);
  const cancel = () => {
    request.signal.removeEventListener('abort', giveUp);
    abort.abort();
  };
  try {
    const response = await follow(request, abort.signal);
    return { response, cancel };
  } catch (error) {
    request.signal.removeEventListener('abort', giveUp);
    throw abort.signal.reason instanceof SilenceError ? abort.signal.reason : error;
  } finally {
    clearTimeout(timer);
  }
}

/** Nothing came for too long. */
export class SilenceError extends Error {
  override name = 'SilenceError';
  constructor(ms: number) {
    super(`no answer for ${Math.round(ms / 1000)} seconds`);
  }
}

async function follow(request: TransportRequest, signal: AbortSignal): Promise<Response> {
  let url = new URL(request.url);
  // Answers must come as they were stored: a compressed transfer would be unpacked on the way.
  const headers: Record<string, string> = { 'accept-encoding': 'identity', ...request.headers };
  for (let hops = 0; ; hops++) {
    const response = await fetch(url, { headers, signal, redirect: 'manual' });
    const location = response.headers.get('location');
    if (response.status < 300 || response.status > 399 || !location) return response;
    await response.body?.cancel();
    if (hops === MAX_REDIRECTS) {
      throw new ImageError(
        'unreachable',
        `${new URL(request.url).host} redirects more than ${MAX_REDIRECTS} times`,
      );
    }
    const next = new URL(location, url);
    checkRedirect(url, next, request.policy);
    if (next.origin !== url.origin) delete headers['authorization'];
    url = next;
  }
}

function checkRedirect(from: URL, to: URL, policy: InsecurePolicy): void {
  if (to.protocol === 'https:') return;
  // Content is checked by digest, so plain HTTP is a matter of who may listen: not worse than it was before.
  if (to.protocol === 'http:' && (from.protocol === 'http:' || policy.allows(to.host))) return;
  throw new ImageError(
    'insecure-registry',
    `${from.host} redirects to ${to.protocol}//${to.host}, which is not encrypted; allow that host as an insecure registry if you trust the network`,
  );
}

/** True if the other side of a failed TLS connection does not speak TLS. */
export function isNotTls(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno !== undefined && NOT_TLS.has(errno);
}

/** Why a request failed, in words: `fetch` hides it in `cause`. */
export function describeNetworkError(error: unknown): string {
  const texts: Record<string, string> = {
    ENOTFOUND: 'its name is not known to DNS',
    EAI_AGAIN: 'DNS does not answer',
    ECONNREFUSED: 'nothing listens there',
    ECONNRESET: 'it closed the connection',
    EHOSTUNREACH: 'there is no route to it',
    ENETUNREACH: 'there is no network',
    ETIMEDOUT: 'it does not answer',
    UND_ERR_CONNECT_TIMEOUT: 'it does not answer',
    UND_ERR_SOCKET: 'it closed the connection',
  };
  const errno = errnoOf(error);
  if (errno && texts[errno]) return `${texts[errno]} (${errno})`;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}
