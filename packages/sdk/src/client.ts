/** The entry of the SDK: where the server is, who asks, and the resources of the API. */
import { readFileSync } from 'node:fs';
import { SandlotError } from './errors.js';
import { GatewayAccess } from './gateway-access.js';
import { GatewayClient } from './gateway-client.js';
import { ApiClient } from './http/api-client.js';
import { defaultRetryPolicy } from './http/retry.js';
import { FetchTransport, NodeTransport, type Transport } from './http/transport.js';
import { Accounts } from './resources/accounts.js';
import { Checkpoints } from './resources/checkpoints.js';
import { Images } from './resources/images.js';
import { Sandboxes } from './resources/sandboxes.js';
import { Server } from './resources/server.js';
import type { SandboxContext } from './sandbox-context.js';

/** Options of {@link Sandlot}. */
export interface SandlotOptions {
  /**
   * `http://host:port`, `https://…`, or `unix:/path/of/admin.sock`. Otherwise SANDLOT_URL, otherwise
   * the server on this machine.
   */
  url?: string | undefined;
  /** Otherwise SANDLOT_API_KEY. */
  apiKey?: string | undefined;
  /** Carries the requests of the API and of file transfers; Node's own client otherwise. */
  fetch?: typeof fetch | undefined;
  /** Time for one attempt of an API call, milliseconds; 60,000 otherwise. */
  timeoutMs?: number | undefined;
  /** Repeats after failures that may pass; 4 otherwise. */
  maxRetries?: number | undefined;
}

/** Where a server listens unless told otherwise. */
export const defaultUrl = 'http://127.0.0.1:7070';

/** A client. `close()` closes its idle connections; a program may also just end. */
export class Sandlot {
  readonly sandboxes: Sandboxes;
  readonly checkpoints: Checkpoints;
  readonly images: Images;
  readonly accounts: Accounts;
  readonly server: Server;
  /** Where requests go. */
  readonly url: string;
  readonly #transport: Transport;

  constructor(options: SandlotOptions = {}) {
    const { baseUrl, socketPath } = parseUrl(options.url ?? process.env['SANDLOT_URL'] ?? defaultUrl);
    this.url = options.url ?? baseUrl;
    this.#transport = options.fetch ? new FetchTransport(options.fetch) : new NodeTransport(socketPath);
    const api = new ApiClient({
      baseUrl,
      apiKey: options.apiKey ?? (process.env['SANDLOT_API_KEY'] || undefined),
      transport: this.#transport,
      timeoutMs: options.timeoutMs ?? 60_000,
      retry: { ...defaultRetryPolicy, maxRetries: options.maxRetries ?? defaultRetryPolicy.maxRetries },
      userAgent: `sandlot-sdk/${sdkVersion()} node/${process.versions.node}`,
    });
    const access = new GatewayAccess(api);
    const context: SandboxContext = {
      api,
      access,
      gateway: new GatewayClient(api, access),
      sandboxes: () => this.sandboxes,
      checkpoints: () => this.checkpoints,
    };
    this.sandboxes = new Sandboxes(context);
    this.checkpoints = new Checkpoints(api);
    this.images = new Images(api);
    this.accounts = new Accounts(api);
    this.server = new Server(api);
  }

  /** Closes idle connections. */
  close(): void {
    this.#transport.close();
  }
}

/** Base without trailing slash and `/api/v1`; a unix socket apart. */
export function parseUrl(text: string): { baseUrl: string; socketPath?: string } {
  if (text.startsWith('unix:')) {
    return { baseUrl: 'http://localhost', socketPath: text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '') };
  }
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw new SandlotError(`"${text}" is not a URL; give one such as ${defaultUrl}`, {
      code: 'BAD_URL',
      cause,
    });
  }
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new SandlotError(`"${text}" is not a http or https URL`, { code: 'BAD_URL' });
  }
  return {
    baseUrl: text
      .replace(/\/+$/, '')
      .replace(/\/api\/v1$/, '')
      .replace(/\/+$/, ''),
  };
}

/** Version of this package. */
export function sdkVersion(): string {
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
