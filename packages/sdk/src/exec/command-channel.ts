/**
 * The Connect service of one sandbox, with the token added and renewed once when it is refused.
 * The libraries behind it are loaded when the first command is run, so that programs which never
 * run one start fast. Used by `exec/start.ts` and by the process object.
 */
import type { Client, Transport } from '@connectrpc/connect';
import type { CommandSession } from '@sandlot/protocol';
import { AuthenticationError, type SandlotError } from '../errors.js';
import type { GatewayAccess, GatewayEntry } from '../gateway-access.js';
import type { Transport as HttpTransport } from '../http/transport.js';

/** The generated messages and the Connect client library. */
export interface ExecModules {
  connect: typeof import('@connectrpc/connect');
  node: typeof import('@connectrpc/connect-node');
  protobuf: typeof import('@bufbuild/protobuf');
  messages: typeof import('@sandlot/protocol/gen/command_session_pb');
  errors: typeof import('./exec-errors.js');
}

/** Loads them; Node keeps what it has loaded. */
export async function loadExecModules(): Promise<ExecModules> {
  const [connect, node, protobuf, messages, errors] = await Promise.all([
    import('@connectrpc/connect'),
    import('@connectrpc/connect-node'),
    import('@bufbuild/protobuf'),
    import('@sandlot/protocol/gen/command_session_pb'),
    import('./exec-errors.js'),
  ]);
  return { connect, node, protobuf, messages, errors };
}

/** The service's client and the headers of a call. */
export interface AuthorizedClient {
  client: Client<typeof CommandSession>;
  headers: Record<string, string>;
  entry: GatewayEntry;
}

/** The service of one sandbox. */
export class CommandChannel {
  #transport: { baseUrl: string; transport: Transport } | undefined;

  constructor(
    readonly sandboxId: string,
    readonly modules: ExecModules,
    private readonly access: GatewayAccess,
    private readonly http: HttpTransport,
    private readonly userAgent: string,
  ) {}

  /** A client with a good token. */
  async authorize(signal?: AbortSignal): Promise<AuthorizedClient> {
    const entry = await this.access.get(this.sandboxId, { signal });
    return {
      client: this.modules.connect.createClient(
        this.modules.messages.CommandSession,
        this.#transportFor(entry.baseUrl),
      ),
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
    return this.modules.errors.fromConnectError(what, cause, signal);
  }

  #transportFor(baseUrl: string): Transport {
    if (this.#transport?.baseUrl === baseUrl) return this.#transport.transport;
    const agent = this.http.agentFor(baseUrl);
    const transport = this.modules.node.createConnectTransport({
      baseUrl,
      httpVersion: '1.1',
      useBinaryFormat: true,
      // Output is small messages on a fast path: compressing them costs more than it saves.
      acceptCompression: [],
      ...(agent ? { nodeOptions: { agent } } : {}),
    });
    this.#transport = { baseUrl, transport };
    return transport;
  }
}
