/** `sandlot up`: starts what does not run, or renews it, and says what it did. */
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { checkOptions } from '../up/check-options.js';
import { ensureKey, type KeyOutcome } from '../up/first-key.js';
import { type LocalServer, withOptions, withServer } from '../up/local-server.js';
import { readReadyFile } from '../up/process-identity.js';
import { type RenewOptions, startWhatIsMissing } from '../up/start-daemons.js';
import { supervise } from '../up/supervise.js';

/** Its options, beside those of the daemons. */
export interface UpOptions extends OutputOptions, RenewOptions {
  detach?: boolean;
  data?: string;
}

/** The action. */
export async function run(context: CliContext, _args: [], options: UpOptions): Promise<number> {
  if (process.platform !== 'linux') {
    throw new CliError(`a server needs Linux, this is ${process.platform}`, {
      hint: 'Start it on a Linux machine and name it here: `sandlot config set url http://HOST:7070`.',
    });
  }
  const { server, started } = await withServer(
    options.data ?? context.settings().data.value,
    context.isRoot,
    (pid) => context.out.note(`waiting for another sandlot (pid ${pid}) that starts or stops this server …`),
    (kept) => bringUp(context, kept, options),
  );
  if (options.detach || started.length === 0) return 0;
  context.out.note('running in the foreground; Ctrl-C stops the daemons, sandboxes go on');
  const end = await supervise(context, server);
  context.out.note(
    end === 'told'
      ? 'stopped; sandboxes go on. `sandlot up` takes them over again, `sandlot down` ends them.'
      : 'the daemons were stopped from elsewhere',
  );
  return 0;
}

/** What `up` does under the lock. */
async function bringUp(
  context: CliContext,
  kept: LocalServer,
  options: UpOptions,
): Promise<{ server: LocalServer; started: string[] }> {
  const wanted = withOptions(kept, options as unknown as Record<string, unknown>);
  // Also with the old flags: their files may have changed since, and what is stopped must be able to start.
  if (wanted !== kept || options.restart || options.ifStale)
    for (const warning of await checkOptions([wanted.nodeAgent, wanted.controlPlane]))
      context.out.note(`warning: ${warning}`);
  const started = await startWhatIsMissing(context, kept, wanted, options);
  if (wanted !== kept && started.length < 2)
    context.out.note(
      'what was running keeps its old flags; `sandlot up --restart` with the new ones renews it',
    );
  const server = started.includes(wanted.controlPlane.role) ? wanted : kept;
  const key = await ensureKey(context, server);
  report(context, server, started, key, options);
  return { server, started };
}

function report(
  context: CliContext,
  server: LocalServer,
  started: string[],
  key: KeyOutcome,
  options: UpOptions,
): void {
  const { layout, url, instance } = server;
  const processes = [server.nodeAgent, server.controlPlane].map((spec) => ({
    role: spec.role,
    pid: readReadyFile(spec.readyFile)?.pid,
    log: spec.logFile,
  }));
  if (options.output === 'json') {
    context.out.json({ url, data: layout.data, instance: instance.instanceId, started, processes });
    return;
  }
  if (started.length === 0) context.out.line(`already running: ${url}`);
  else {
    context.out.line(`running: ${url}`);
    for (const { role, pid, log } of processes) {
      const state = started.includes(role) ? 'started' : 'was running';
      context.out.line(`  ${role.padEnd(13)} ${state}, pid ${pid}, log ${log}`);
    }
    context.out.line(`  data          ${layout.data} (instance ${instance.instanceId})`);
  }
  if (key === 'unclear')
    context.out.note(
      `whether your API key works could not be asked: ${url} cannot be reached from here, or its certificate is not trusted (\`sandlot status\` says more)`,
    );
  if (key === 'written')
    context.out.note('an API key was made and written to your configuration (`sandlot config`)');
  if (!context.isRoot) {
    context.out.note(
      "not root: sandboxes share QEMU's user network (off unless --rootless-network), have no uid of their own and no CPU limits",
    );
  }
  if (started.length > 0) context.out.note('next: sandlot create python:3.11-slim');
}
