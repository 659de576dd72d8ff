/**
 * A sandbox as an agent has it: commands in the default view of the sandbox and nothing else. Made from what
 * `sandbox.agentAccess()` gave its owner; knows no API key.
 */
import { sdkVersion } from './client.js';
import type { ExecOptions, RunOptions, RunResult } from './exec/exec-types.js';
import type { SandboxProcess } from './exec/process.js';
import { SandboxCommands } from './exec/sandbox-commands.js';
import type { AgentAccess } from './gateway-access.js';
import { FetchTransport, NodeTransport, type Transport } from './http/transport.js';

/** What an agent may do: the server refuses its token everything else. `close()` closes idle connections. */
export class AgentSandbox {
  readonly id: string;
  readonly #transport: Transport;
  readonly #commands: SandboxCommands;

  constructor(access: AgentAccess, options: { fetch?: typeof fetch | undefined } = {}) {
    this.id = access.sandboxId;
    this.#transport = options.fetch ? new FetchTransport(options.fetch) : new NodeTransport();
    const entry = {
      baseUrl: access.url,
      token: access.token,
      expiresAtUnixMs: Date.parse(access.expiresAt),
    };
    this.#commands = new SandboxCommands(access.sandboxId, {
      // There is one token, and nobody to ask for another.
      access: { get: async () => entry, drop: () => undefined },
      transport: this.#transport,
      userAgent: `sandlot-sdk/${sdkVersion()} node/${process.versions.node}`,
      // Why a sandbox does not run is told to keys only.
      whyNotRunning: async () => undefined,
    });
  }

  /** Starts a command; resolves when it has been started. */
  exec(argv: readonly string[], options: Omit<ExecOptions, 'view'> = {}): Promise<SandboxProcess> {
    return this.#commands.exec(argv, options);
  }

  /** Runs a command to its end and collects what it printed, up to a limit. A non-zero exit is a result. */
  run(argv: readonly string[], options: Omit<RunOptions, 'view'> = {}): Promise<RunResult> {
    return this.#commands.run(argv, options);
  }

  /** Attaches to a command that was started in the view with `session`. */
  attach(
    session: string,
    options: { signal?: AbortSignal | undefined; terminal?: boolean | undefined } = {},
  ): Promise<SandboxProcess> {
    return this.#commands.attach(session, options);
  }

  /** Closes idle connections. */
  close(): void {
    this.#transport.close();
  }
}
