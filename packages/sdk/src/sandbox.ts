/** A handle on one sandbox: commands, files, state, end. Made by `client.sandboxes`. */

import type { ErrorContext, GatewayAuth } from '@sandlot/protocol';
import { NotBuiltError } from './errors.js';
import type { ExecOptions, RunOptions, RunResult } from './exec/exec-types.js';
import type { SandboxProcess } from './exec/process.js';
import { SandboxCommands } from './exec/sandbox-commands.js';
import { SandboxFiles } from './files/sandbox-files.js';
import { type AgentAccess, gatewayBaseUrl } from './gateway-access.js';
import type { CallOptions } from './http/api-client.js';
import type { CheckpointInfo, CheckpointOptions } from './resources/checkpoints.js';
import type { WaitOptions } from './resources/sandbox-records.js';
import type { ForkOptions, RollbackOptions, SandboxInfo } from './resources/sandbox-types.js';
import type { SandboxContext } from './sandbox-context.js';

/** One sandbox. Holds nothing open; there is nothing to close. */
export class Sandbox {
  readonly id: string;
  /** Uploads, downloads, windows, stat. */
  readonly files: SandboxFiles;
  #info: SandboxInfo | undefined;
  readonly #commands: SandboxCommands;

  constructor(
    private readonly context: SandboxContext,
    info: SandboxInfo | undefined,
    id = info?.id ?? '',
  ) {
    this.id = id;
    this.#info = info;
    this.files = new SandboxFiles(id, context.gateway);
    const { transport, userAgent } = context.api.options;
    this.#commands = new SandboxCommands(id, {
      access: context.access,
      transport,
      userAgent,
      whyNotRunning: (sandboxId, cause, signal) => context.gateway.whyNotRunning(sandboxId, cause, signal),
    });
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
  exec(argv: readonly string[], options: ExecOptions = {}): Promise<SandboxProcess> {
    return this.#commands.exec(argv, options);
  }

  /** Runs a command to its end and collects what it printed, up to a limit. A non-zero exit is a result. */
  run(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    return this.#commands.run(argv, options);
  }

  /** Attaches to a command that was started with `session`. */
  attach(
    session: string,
    options: { signal?: AbortSignal | undefined; terminal?: boolean | undefined } = {},
  ): Promise<SandboxProcess> {
    return this.#commands.attach(session, options);
  }

  /**
   * Leave for an agent to run commands in the default view of this sandbox, and to do nothing else: for an
   * `AgentSandbox`, or any client of the gateway. It ends with the sandbox, or at `expiresAt`.
   * @throws ValidationError when the sandbox has no default view
   */
  async agentAccess(options: CallOptions = {}): Promise<AgentAccess> {
    const auth = await this.context.api.call<GatewayAuth>({
      method: 'POST',
      path: `/sandbox/${encodeURIComponent(this.id)}/auth`,
      body: { in_view: true },
      idempotent: true,
      ...options,
    });
    // A server that knows no views ignores the wish, and its token may do everything.
    if (auth.in_view !== true)
      throw new NotBuiltError('this server has no tokens for agents; use a newer version', {
        code: 'NOT_IMPLEMENTED',
      });
    return {
      sandboxId: this.id,
      url: gatewayBaseUrl(auth),
      token: auth.token,
      expiresAt: auth.expires_at,
    };
  }

  /** Output of the start command, newest 1 MiB. */
  logs(options: CallOptions = {}): Promise<string> {
    return this.context.sandboxes().logs(this.id, options);
  }

  /** State and, where it has ended, why. */
  errorContext(options: CallOptions = {}): Promise<ErrorContext> {
    return this.context.sandboxes().errorContext(this.id, options);
  }

  /** Saves it, processes and all, and frees its memory. Its next use, or `resume`, lets it go on; `session`s can be attached to then. */
  async pause(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#info = await this.context.sandboxes().pause(this.id, options);
    return this.#info;
  }

  /** Lets it go on after a pause. */
  async resume(options: CallOptions = {}): Promise<SandboxInfo> {
    this.#info = await this.context.sandboxes().resume(this.id, options);
    return this.#info;
  }

  /**
   * Saves it, and it goes on; resolves when the checkpoint can be restored. What happens after the call is not in it.
   * @throws CheckpointFailedError when it could not be saved
   */
  checkpoint(checkpoint: CheckpointOptions = {}, options: CallOptions = {}): Promise<CheckpointInfo> {
    return this.context.checkpoints().create(this.id, checkpoint, options);
  }

  /** Puts it back to a checkpoint of it; resolves when it runs. What it did since is gone, and its commands of now end. */
  async rollback(
    checkpointId: string,
    how: RollbackOptions = {},
    options: CallOptions = {},
  ): Promise<SandboxInfo> {
    this.#info = await this.context.sandboxes().rollback(this.id, checkpointId, how, options);
    return this.#info;
  }

  /** Copies of it, processes and all, ready to exec; it goes on. Of `allowPartial`, those that run. */
  async fork(fork: ForkOptions = {}, options: CallOptions = {}): Promise<Sandbox[]> {
    const { sandboxes } = await this.context.sandboxes().forkInfos(this.id, fork, options);
    return sandboxes.map((info) => new Sandbox(this.context, info));
  }

  /** Deletes it. */
  delete(options: CallOptions = {}): Promise<void> {
    return this.context.sandboxes().delete(this.id, options);
  }
}
