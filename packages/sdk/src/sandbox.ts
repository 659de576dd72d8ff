/** A handle on one sandbox: commands, files, state, end. Made by `client.sandboxes`. */

import type { ErrorContext } from '@sandlot/protocol';
import { CommandChannel, loadExecModules } from './exec/command-channel.js';
import type { ExecOptions, RunOptions, RunResult } from './exec/exec-types.js';
import type { SandboxProcess } from './exec/process.js';
import { SandboxFiles } from './files/sandbox-files.js';
import type { CallOptions } from './http/api-client.js';
import type { WaitOptions } from './resources/sandbox-records.js';
import type { SandboxInfo } from './resources/sandbox-types.js';
import type { SandboxContext } from './sandbox-context.js';

/** One sandbox. Holds nothing open; there is nothing to close. */
export class Sandbox {
  readonly id: string;
  /** Uploads, downloads, windows, stat. */
  readonly files: SandboxFiles;
  #info: SandboxInfo | undefined;
  #channel: Promise<CommandChannel> | undefined;

  constructor(
    private readonly context: SandboxContext,
    info: SandboxInfo | undefined,
    id = info?.id ?? '',
  ) {
    this.id = id;
    this.#info = info;
    this.files = new SandboxFiles(id, context.gateway);
  }

  /** What the server last said; undefined for a handle made from an id alone. */
  get info(): SandboxInfo | undefined {
    return this.#info;
  }

  /** Asks the server again. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#info = await this.context.sandboxes().info(this.id, options);
    return this.#info;
  }

  /** Waits until commands can be run. */
  async waitUntilRunning(options: WaitOptions = {}): Promise<SandboxInfo> {
    this.#info = await this.context.sandboxes().waitUntilRunning(this.id, options);
    return this.#info;
  }

  /** Starts a command; resolves when it has been started. */
  async exec(argv: readonly string[], options: ExecOptions = {}): Promise<SandboxProcess> {
    const [channel, { startProcess }] = await this.#execParts();
    return startProcess(channel, this.#why, argv, options);
  }

  /** Runs a command to its end and collects what it printed, up to a limit. A non-zero exit is a result. */
  async run(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    const [channel, { startProcess, collectRun }] = await this.#execParts();
    return collectRun(await startProcess(channel, this.#why, argv, options), options);
  }

  /** Attaches to a command that was started with `session`. */
  async attach(
    session: string,
    options: { signal?: AbortSignal | undefined; terminal?: boolean | undefined } = {},
  ): Promise<SandboxProcess> {
    const [channel, { attachProcess }] = await this.#execParts();
    return attachProcess(channel, this.#why, session, options);
  }

  /** Output of the start command, newest 1 MiB. */
  logs(options: CallOptions = {}): Promise<string> {
    return this.context.sandboxes().logs(this.id, options);
  }

  /** State and, where it has ended, why. */
  errorContext(options: CallOptions = {}): Promise<ErrorContext> {
    return this.context.sandboxes().errorContext(this.id, options);
  }

  /** Deletes it. */
  delete(options: CallOptions = {}): Promise<void> {
    return this.context.sandboxes().delete(this.id, options);
  }

  readonly #why = (sandboxId: string, cause: Error, signal?: AbortSignal) =>
    this.context.gateway.whyNotRunning(sandboxId, cause, signal);

  async #execParts() {
    this.#channel ??= loadExecModules().then(
      (modules) =>
        new CommandChannel(
          this.id,
          modules,
          this.context.access,
          this.context.api.options.transport,
          this.context.api.options.userAgent,
        ),
    );
    return Promise.all([this.#channel, import('./exec/start.js')] as const);
  }
}
