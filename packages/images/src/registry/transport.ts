/**
 * One HTTP request to a registry or where it redirects to: TLS unless plain HTTP is allowed for the host,
 * redirects followed by hand so that credentials never reach another host, and an end to every wait.
 * Called by the registry client only.
 */
import { type ClientRequest, Agent as HttpAgent, get as httpGet, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, get as httpsGet } from 'node:https';
import { errnoOf } from '../fault.js';
import { ImageError } from '../store.js';
import { isLoopback, loginRefusal, ProxySettings, proxyAddress, proxyHeaders, TunnelAgent } from './proxy.js';

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

/** A request. */
export interface TransportRequest {
  url: string;
  headers: Record<string, string>;
  /** Headers of the answer must come within this time. */
  silenceMs: number;
  signal: AbortSignal;
  policy: InsecurePolicy;
}

/** An answer. `cancel` must be called in the end, whether the body was read or not. */
export interface TransportResponse {
  status: number;
  /** A header by its lowercase name, or null. */
  header(name: string): string | null;
  body: IncomingMessage;
  cancel(): void;
}

/** Connections of one pull. `fetch` would do as well, but costs twice the time for large bodies. */
export class Connections {
  private readonly http = new HttpAgent({ keepAlive: true, maxSockets: 8 });
  private readonly https = new HttpsAgent({ keepAlive: true, maxSockets: 8 });
  private readonly tunnels = new Map<string, TunnelAgent>();
  private readonly proxies: ProxySettings;

  /** @throws ImageError if the environment names no usable proxy */
  constructor(environment: Record<string, string | undefined> = process.env) {
    this.proxies = new ProxySettings(environment);
  }

  /** Sends a GET. Rejects with an error of the network, or an `ImageError` for what another try cannot change. */
  async send(request: TransportRequest): Promise<TransportResponse> {
    let url = new URL(request.url);
    // Answers must come as they were stored: a compressed transfer would be unpacked on the way.
    const headers: Record<string, string> = { 'accept-encoding': 'identity', ...request.headers };
    for (let hops = 0; ; hops++) {
      const answer = await this.get(url, headers, request);
      const location = answer.header('location');
      if (answer.status < 300 || answer.status > 399 || !location) return answer;
      answer.cancel();
      if (hops === MAX_REDIRECTS) {
        const { host } = new URL(request.url);
        throw new ImageError(
          'unreachable',
          `${host} redirects more than ${MAX_REDIRECTS} times. It is set up wrongly: tell who runs it`,
        );
      }
      const next = new URL(location, url);
      checkRedirect(url, next, request.policy);
      if (next.origin !== url.origin) delete headers['authorization'];
      url = next;
    }
  }

  /** Ends all connections. */
  close(): void {
    this.http.destroy();
    this.https.destroy();
    for (const tunnel of this.tunnels.values()) tunnel.destroy();
  }

  private begin(
    url: URL,
    proxy: URL | undefined,
    headers: Record<string, string>,
    signal: AbortSignal,
  ): ClientRequest {
    if (url.protocol === 'https:') {
      const agent = proxy === undefined ? this.https : this.tunnelBy(proxy);
      return httpsGet(url, { headers, signal, agent });
    }
    if (proxy === undefined) return httpGet(url, { headers, signal, agent: this.http });
    // A proxy for plain HTTP is given the whole URL (RFC 9112, 3.2.2).
    const asked = {
      ...proxyAddress(proxy),
      path: url.href,
      headers: { ...headers, host: url.host, ...proxyHeaders(proxy) },
      signal,
    };
    return proxy.protocol === 'https:'
      ? httpsGet({ ...asked, agent: this.https })
      : httpGet({ ...asked, agent: this.http });
  }

  private tunnelBy(proxy: URL): TunnelAgent {
    const known = this.tunnels.get(proxy.href) ?? new TunnelAgent(proxy);
    this.tunnels.set(proxy.href, known);
    return known;
  }

  private get(
    url: URL,
    headers: Record<string, string>,
    request: TransportRequest,
  ): Promise<TransportResponse> {
    const { signal, silenceMs } = request;
    const proxy = this.proxies.proxyFor(url);
    return new Promise((resolve, reject) => {
      const sent = this.begin(url, proxy, headers, signal);
      const timer = setTimeout(() => sent.destroy(new SilenceError(silenceMs)), silenceMs);
      sent.on('error', (error) => {
        clearTimeout(timer);
        reject(error);
      });
      sent.on('response', (body) => {
        clearTimeout(timer);
        // Nobody may be reading when a cancelled body reports its end as an error.
        body.on('error', () => undefined);
        // Of a registry behind a tunnel it is that registry's own.
        if (proxy !== undefined && url.protocol === 'http:' && body.statusCode === 407) {
          body.destroy();
          reject(loginRefusal(proxy, url.host));
          return;
        }
        resolve({
          status: body.statusCode ?? 0,
          header: (name) => [body.headers[name] ?? null].flat()[0] ?? null,
          body,
          cancel: () => {
            // A complete answer leaves its connection to the next request.
            if (!body.complete || !body.readableEnded) body.destroy();
          },
        });
      });
    });
  }
}

/** Nothing came for too long. */
export class SilenceError extends Error {
  override name = 'SilenceError';
  constructor(ms: number) {
    super(`no answer for ${Math.round(ms / 1000)} seconds`);
  }
}

function checkRedirect(from: URL, to: URL, policy: InsecurePolicy): void {
  if (to.protocol === 'https:') return;
  // Content is checked by digest, so plain HTTP is a matter of who may listen: not worse than it was before.
  if (to.protocol === 'http:' && (from.protocol === 'http:' || policy.allows(to.host))) return;
  throw new ImageError(
    'insecure-registry',
    `${from.host} redirects to ${to.protocol}//${to.host}, which is not encrypted. If you trust the network to it, \`sandlot up --restart --insecure-registry ${to.host}\` allows it`,
  );
}

/** True if the other side of a failed TLS connection does not speak TLS. */
export function isNotTls(error: unknown): boolean {
  const errno = errnoOf(error);
  return errno !== undefined && NOT_TLS.has(errno);
}

/** Why a request failed, in words. */
export function describeNetworkError(error: unknown): string {
  const texts: Record<string, string> = {
    ENOTFOUND: 'its name is not known to DNS',
    EAI_AGAIN: 'DNS does not answer',
    ECONNREFUSED: 'nothing listens there',
    ECONNRESET: 'it closed the connection',
    EHOSTUNREACH: 'there is no route to it',
    ENETUNREACH: 'there is no network',
    ETIMEDOUT: 'it does not answer',
  };
  const errno = errnoOf(error);
  if (errno && texts[errno]) return `${texts[errno]} (${errno})`;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}
