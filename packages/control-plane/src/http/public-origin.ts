/**
 * The origin by which a client reaches us: every URL in an answer is built from it. Configured, or
 * from the forwarded headers of a trusted proxy, or from the Host header of the request.
 */
import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';

/** How to find the origin. */
export interface OriginOptions {
  /** Used for every answer when given. */
  publicUrl?: string | undefined;
  /** Addresses or CIDRs of proxies whose `X-Forwarded-*` headers count. */
  trustedProxies: readonly string[];
}

/** Finds the origin of a request. */
export class PublicOrigin {
  readonly #publicUrl: string | undefined;
  readonly #trusted = new BlockList();

  constructor(
    options: OriginOptions,
    /** Our own, for requests that name no host: those of the admin socket. */
    private readonly listenOrigin: () => string,
  ) {
    this.#publicUrl = options.publicUrl?.replace(/\/+$/, '');
    for (const proxy of options.trustedProxies) this.#trust(proxy);
  }

  /** `https://host[:port]`, without a slash at the end. */
  of(request: IncomingMessage, isLocalAdmin: boolean): string {
    if (this.#publicUrl !== undefined) return this.#publicUrl;
    if (isLocalAdmin) return this.listenOrigin();
    const forwarded = this.#isTrusted(request.socket.remoteAddress) ? forwardedOrigin(request) : undefined;
    if (forwarded !== undefined) return forwarded;
    // HTTP/2 has another name for it.
    const host = String(request.headers[':authority'] ?? request.headers.host ?? '');
    if (!isHost(host)) return this.listenOrigin();
    const encrypted = 'encrypted' in request.socket && request.socket.encrypted === true;
    return `${encrypted ? 'https' : 'http'}://${host}`;
  }

  #trust(proxy: string): void {
    const [address = '', bits] = proxy.split('/');
    const family = isIP(address);
    if (family === 0) throw new Error(`trusted proxy "${proxy}" is not an address or CIDR`);
    const type = family === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) this.#trusted.addAddress(address, type);
    else this.#trusted.addSubnet(address, Number(bits), type);
  }

  #isTrusted(address: string | undefined): boolean {
    if (address === undefined) return false;
    const plain = address.replace(/^::ffff:/, '');
    const family = isIP(plain);
    return family !== 0 && this.#trusted.check(plain, family === 6 ? 'ipv6' : 'ipv4');
  }
}

/** Of a chain of proxies the last one's word counts: it is the one that is trusted. */
function forwardedOrigin(request: IncomingMessage): string | undefined {
  const host = lastOf(request.headers['x-forwarded-host']);
  if (host === undefined || !isHost(host)) return undefined;
  return `${lastOf(request.headers['x-forwarded-proto']) === 'https' ? 'https' : 'http'}://${host}`;
}

function lastOf(header: string | string[] | undefined): string | undefined {
  return (Array.isArray(header) ? header.join(',') : header)?.split(',').at(-1)?.trim();
}

function isHost(text: string): boolean {
  return /^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?$/.test(text);
}
