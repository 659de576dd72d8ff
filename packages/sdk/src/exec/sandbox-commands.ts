/** Commands of one sandbox: start, run, attach. Behind the handle of an owner (`sandbox.ts`) and that of an agent (`agent-sandbox.ts`). */
import type { Transport } from '../http/transport.js';
import { CommandChannel, loadExecModules, type TokenSource } from './command-channel.js';
import type { WhyNotRunning } from './event-stream.js';
import type { ExecOptions, RunOptions, RunResult } from './exec-types.js';
import type { SandboxProcess } from './process.js';

/** What commands need of their client. */
export interface CommandParts {
  access: TokenSource;
  transport: Transport;
  userAgent: string;
  whyNotRunning: WhyNotRunning;
}

/** Runs commands; loads the code for it with the first one. */
export class SandboxCommands {
  #channel: Promise<CommandChannel> | undefined;

  constructor(
    private readonly sandboxId: string,
    private readonly parts: CommandParts,
  ) {}

  /** Starts a command; resolves when it has been started. */
  async exec(argv: readonly string[], options: ExecOptions): Promise<SandboxProcess> {
    const [channel, { startProcess }] = await this.#load();
    return startProcess(channel, this.parts.whyNotRunning, argv, options);
  }

  /** Runs a command to its end. */
  async run(argv: readonly string[], options: RunOptions): Promise<RunResult> {
    const [channel, { startProcess, collectRun }] = await this.#load();
    return collectRun(await startProcess(channel, this.parts.whyNotRunning, argv, options), options);
  }

  /** Attaches to a session. */
  async attach(
    session: string,
    options: { signal?: AbortSignal | undefined; terminal?: boolean | undefined },
  ): Promise<SandboxProcess> {
    const [channel, { attachProcess }] = await this.#load();
    return attachProcess(channel, this.parts.whyNotRunning, session, options);
  }

  #load() {
    const { access, transport, userAgent } = this.parts;
    this.#channel ??= loadExecModules().then(
      (modules) => new CommandChannel(this.sandboxId, modules, access, transport, userAgent),
    );
    return Promise.all([this.#channel, import('./start.js')] as const);
  }
}
