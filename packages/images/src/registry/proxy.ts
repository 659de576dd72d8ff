/**
 * Proxies between us and registries, as the environment names them: HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in lower
 * case first. Node 20 reads none of them itself. This host is never asked for through a proxy. Called by the transport.
 */
import { type ClientRequest, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { BlockList, isIP, isIPv6 } from 'node:net';
import type { Duplex } from 'node:stream';
import { ImageError } from '../store.js';

/** Until the proxy has opened a tunnel, ms. */
const connectTimeoutMs = 30_000;

type Environment = Record<string, string | undefined>;

/** Which proxy a URL is asked for through. */
export class ProxySettings {
  private readonly proxies: Record<string, URL | undefined>;
  private readonly exceptions: Exception[];
  private readonly ranges = new BlockList();

  constructor(environment: Environment) {
    const read = (name: string) => environment[name.toLowerCase()] || environment[name];
    this.proxies = {
      'http:': parseProxy('HTTP_PROXY', read('HTTP_PROXY')),
      'https:': parseProxy('HTTPS_PROXY', read('HTTPS_PROXY')),
    };
    const words = (read('NO_PROXY') ?? '').split(/[\s,]+/).filter((word) => word !== '');
    this.exceptions = words.filter((word) => !this.addRange(word)).map(parseException);
  }

  /** The proxy for a URL; undefined: none, it is asked directly. */
  proxyFor(url: URL): URL | undefined {
    const proxy = this.proxies[url.protocol];
    return proxy === undefined || isLoopback(url.hostname) || this.isExcepted(url) ? undefined : proxy;
  }

  private isExcepted(url: URL): boolean {
    const host = url.hostname.replace(/^\[|\]$/g, '').toLowerCase();
    const port = url.port || (url.protocol === 'https:' ? '443' : '80');
    const version = isIP(host);
    if (version !== 0 && this.ranges.check(host, version === 4 ? 'ipv4' : 'ipv6')) return true;
    return this.exceptions.some(
      ({ name, port: only }) =>
        (only === undefined || only === port) && (name === '*' || name === host || host.endsWith(`.${name}`)),
    );
  }

  private addRange(word: string): boolean {
    const [address = '', bits = ''] = word.split('/');
    const version = isIP(address);
    if (version === 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > (version === 4 ? 32 : 128)) return false;
    this.ranges.addSubnet(address, Number(bits), version === 4 ? 'ipv4' : 'ipv6');
    return true;
  }
}

/** A name and everything below it, or `*`. */
interface Exception {
  name: string;
  port: string | undefined;
}

function parseException(word: string): Exception {
  const [, name = word, port] = /^(.*?)(?::(\d+))?$/.exec(isIP(word) ? word : word.toLowerCase()) ?? [];
  if (isIP(word)) return { name: word, port: undefined };
  return { name: name.replace(/^\*?\./, ''), port };
}

function parseProxy(variable: string, text: string | undefined): URL | undefined {
  if (text === undefined) return undefined;
  const full = text.includes('://') ? text : `http://${text}`;
  const url = URL.canParse(full) ? new URL(full) : undefined;
  if (url?.protocol === 'http:' || url?.protocol === 'https:') {
    checkLogin(variable, url);
    return url;
  }
  throw new ImageError(
    'unreachable',
    `${variable} of the node agent's environment is not the URL of an HTTP proxy: give http://HOST:PORT, or unset it, and \`sandlot up --restart\``,
  );
}

/** Said now, once and clearly: as a failure of each request it would look like one of the network. */
function checkLogin(variable: string, proxy: URL): void {
  try {
    proxyHeaders(proxy);
  } catch {
    // The cause is left out: nothing of a password goes to a log.
    throw new ImageError(
      'unreachable',
      `the name or password in ${variable} of the node agent's environment has a % that is not followed by the code of a character: write a % itself as %25, and \`sandlot up --restart\``,
    );
  }
}

/** True for names and addresses of this host. */
export function isLoopback(name: string): boolean {
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    name === '[::1]' ||
    /^127\.[0-9]+\.[0-9]+\.[0-9]+$/.test(name)
  );
}

/** Where a proxy listens. Never its whole URL to Node: a name and password in it would become `Authorization`, which is the registry's. */
export function proxyAddress(proxy: URL): { host: string; port: number } {
  const port = Number(proxy.port) || (proxy.protocol === 'https:' ? 443 : 80);
  return { host: proxy.hostname.replace(/^\[|\]$/g, ''), port };
}

/** The header that a proxy with a password asks for. */
export function proxyHeaders(proxy: URL): Record<string, string> {
  if (proxy.username === '') return {};
  const login = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(login).toString('base64')}` };
}

/** TLS connections through tunnels that a proxy opens (RFC 9110, 9.3.6): it sees names and sizes, nothing else. */
export class TunnelAgent extends HttpsAgent {
  /** Requests for tunnels that the proxy has not answered yet: Node knows nothing of them. */
  private readonly pending = new Set<ClientRequest>();

  constructor(private readonly proxy: URL) {
    super({ keepAlive: true, maxSockets: 8 });
  }

  /** Called by Node for each new connection. */
  override createConnection(
    options: { host?: string; port?: number | string },
    callback: (error: Error | null, socket?: Duplex) => void,
  ): undefined {
    const { proxy } = this;
    const { host = '', port = 443 } = options;
    const target = `${isIPv6(host) ? `[${host}]` : host}:${port}`;
    const sent = (proxy.protocol === 'https:' ? httpsRequest : httpRequest)({
      ...proxyAddress(proxy),
      method: 'CONNECT',
      path: target,
      headers: { host: target, ...proxyHeaders(proxy) },
      agent: false,
      timeout: connectTimeoutMs,
    });
    this.pending.add(sent);
    sent.once('close', () => this.pending.delete(sent));
    sent.once('timeout', () => sent.destroy(new Error(`the proxy ${proxy.host} does not answer`)));
    sent.once('error', (error) => callback(error));
    sent.once('connect', (answer, socket) => {
      this.pending.delete(sent);
      const { statusCode: status = 0 } = answer;
      if (status === 200) {
        socket.setTimeout(0);
        callback(null, this.secure({ ...options, socket }));
        return;
      }
      socket.destroy();
      callback(refusal(proxy, target, status));
    });
    sent.end();
    return undefined;
  }

  /** Ends its connections, and what would become one. */
  override destroy(): void {
    for (const sent of this.pending) sent.destroy(new Error('the connections were closed'));
    super.destroy();
  }

  /** Node's own way to a TLS connection, over a socket that is there already. */
  private secure(options: object): Duplex {
    const agent = HttpsAgent.prototype as unknown as { createConnection(options: object): Duplex };
    return agent.createConnection.call(this, options);
  }
}

/** A proxy for plain HTTP wants a login: not the registry, which would be taken for it. */
export function loginRefusal(proxy: URL, host: string): ImageError {
  return new ImageError(
    'unreachable',
    `the proxy ${proxy.host} wants a login before it asks ${host} (status 407). Give it the right name and password in HTTP_PROXY, or name the host in NO_PROXY, and \`sandlot up --restart\``,
  );
}

function refusal(proxy: URL, target: string, status: number): Error {
  const said = `the proxy ${proxy.host} refuses a connection to ${target} (status ${status})`;
  if (status >= 500) return new Error(said);
  return new ImageError(
    'unreachable',
    `${said}. Give it the right name and password in HTTPS_PROXY, or name the host in NO_PROXY, and \`sandlot up --restart\``,
  );
}
