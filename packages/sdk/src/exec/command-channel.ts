/**
 * The Connect service of one sandbox, with the token added and renewed once when it is refused.
 * The libraries behind it are loaded when the first command is run, so that programs which never
 * run one start fast. Used by `exec/start.ts` and by the process object.
 */
import { AuthenticationError, type SandlotError } from '../errors.js';
import type { GatewayEntry } from '../gateway-access.js';
import type { CallOptions } from '../http/api-client.js';
import type { Transport } from '../http/transport.js';
import type { ServiceClient } from './service-client.js';

/** The code behind the first command. */
export interface ExecModules {
  service: typeof import('./service-client.js');
  errors: typeof import('./exec-errors.js');
}

/** Loads it; Node keeps what it has loaded. */
export async function loadExecModules(): Promise<ExecModules> {
  const [service, errors] = await Promise.all([import('./service-client.js'), import('./exec-errors.js')]);
  return { service, errors };
}

/** The service's client and the headers of a call. */
export interface AuthorizedClient {
  client: ServiceClient;
  headers: Record<string, string>;
  entry: GatewayEntry;
}

/** Where tokens come from: `GatewayAccess`, or the one that an agent has. */
export interface TokenSource {
  get(sandboxId: string, options?: CallOptions): Promise<GatewayEntry>;
  /** A token was refused. */
  drop(sandboxId: string, refused?: GatewayEntry): void;
}

/** The service of one sandbox. */
export class CommandChannel {
  constructor(
    readonly sandboxId: string,
    readonly modules: ExecModules,
    private readonly access: TokenSource,
    private readonly transport: Transport,
    private readonly userAgent: string,
  ) {}

  /** A client with a good token. */
  async authorize(signal?: AbortSignal): Promise<AuthorizedClient> {
    const entry = await this.access.get(this.sandboxId, { signal });
    return {
      client: new this.modules.service.ServiceClient(entry.baseUrl, this.transport),
      headers: { authorization: `Bearer ${entry.token}`, 'user-agent': this.userAgent },
      entry,
    };
  }

  /** Forgets a token that was refused. */
  refuse(entry: GatewayEntry): void {
    this.access.drop(this.sandboxId, entry);
  }

  /** Runs a unary call, once more with a fresh token after a 401. Errors come out as {@link SandlotError}. */
  async call<T>(
    what: string,
    signal: AbortSignal | undefined,
    work: (authorized: AuthorizedClient) => Promise<T>,
  ): Promise<T> {
    for (let reauthenticated = false; ; ) {
      const authorized = await this.authorize(signal);
      try {
        return await work(authorized);
      } catch (cause) {
        const error = this.translate(what, cause, signal);
        if (!(error instanceof AuthenticationError) || reauthenticated) throw error;
        this.refuse(authorized.entry);
        reauthenticated = true;
      }
    }
  }

  /** The SDK's error for a failure of the service. */
  translate(what: string, cause: unknown, signal?: AbortSignal): SandlotError {
    return this.modules.errors.toExecError(what, cause, signal);
  }
}
