/**
 * Where the gateway of a sandbox is and the token for it: asked once, kept until shortly before it
 * expires, asked again after a 401. One per client; used by the gateway client and the exec stream.
 */
import type { GatewayAuth } from '@sandlot/protocol';
import type { ApiClient, CallOptions } from './http/api-client.js';

/** A base URL and a token for one sandbox. */
export interface GatewayEntry {
  /** `{gateway_url}/{user_ns}/{job_id}`, without trailing slash. */
  baseUrl: string;
  token: string;
  expiresAtUnixMs: number;
}

/** All that an agent needs; may be passed on as JSON. */
export interface AgentAccess {
  sandboxId: string;
  /** Base of the gateway's routes for this sandbox. */
  url: string;
  /** For `Authorization: Bearer`. */
  token: string;
  /** ISO 8601, UTC. */
  expiresAt: string;
}

/** A token is renewed when it has less than this left. */
const renewBeforeMs = 60_000;
/** Entries kept; the oldest goes first. A client that starts thousands of sandboxes must not grow. */
const maxEntries = 10_000;

/** Where the gateway's routes of a sandbox begin. */
export function gatewayBaseUrl(auth: GatewayAuth): string {
  const origin = auth.gateway_url.replace(/\/+$/, '');
  return `${origin}/${encodeURIComponent(auth.user_ns)}/${encodeURIComponent(auth.job_id)}`;
}

/** The token store of a client. */
export class GatewayAccess {
  readonly #entries = new Map<string, GatewayEntry>();
  readonly #asking = new Map<string, Promise<GatewayEntry>>();

  constructor(private readonly api: ApiClient) {}

  /** The entry for a sandbox, from the store if it is good for another minute. */
  async get(sandboxId: string, options: CallOptions = {}): Promise<GatewayEntry> {
    const known = this.#entries.get(sandboxId);
    if (known && known.expiresAtUnixMs - renewBeforeMs > Date.now()) return known;
    // Callers at the same moment share one request, unless one brings a signal of its own.
    if (options.signal) return this.#ask(sandboxId, options);
    let asking = this.#asking.get(sandboxId);
    if (!asking) {
      asking = this.#ask(sandboxId, options).finally(() => this.#asking.delete(sandboxId));
      this.#asking.set(sandboxId, asking);
    }
    return asking;
  }

  /** Stores what a create or an auth has answered. */
  put(sandboxId: string, auth: GatewayAuth): GatewayEntry {
    const expires = Date.parse(auth.expires_at);
    const entry: GatewayEntry = {
      baseUrl: gatewayBaseUrl(auth),
      token: auth.token,
      expiresAtUnixMs: Number.isNaN(expires) ? 0 : expires,
    };
    this.#entries.delete(sandboxId);
    this.#entries.set(sandboxId, entry);
    if (this.#entries.size > maxEntries) {
      const oldest = this.#entries.keys().next().value;
      if (oldest !== undefined) this.#entries.delete(oldest);
    }
    return entry;
  }

  /** Forgets a token that was refused; a newer one that somebody else has fetched meanwhile stays. */
  drop(sandboxId: string, refused?: GatewayEntry): void {
    if (!refused || this.#entries.get(sandboxId) === refused) this.#entries.delete(sandboxId);
  }

  async #ask(sandboxId: string, options: CallOptions): Promise<GatewayEntry> {
    const auth = await this.api.call<GatewayAuth>({
      method: 'POST',
      path: `/sandbox/${encodeURIComponent(sandboxId)}/auth`,
      idempotent: true,
      ...options,
    });
    return this.put(sandboxId, auth);
  }
}
