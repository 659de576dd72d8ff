/** `sandlot up`: starts what does not run, or renews it, and says what it did. */
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { isStale } from '../up/build-time.js';
import { checkOptions } from '../up/check-options.js';
import { type DaemonSpec, isRunning, startDaemon } from '../up/daemon.js';
import { ensureKey, type KeyOutcome } from '../up/first-key.js';
import { requireFreeAddress } from '../up/free-address.js';
import {
  keepOptions,
  type LocalServer,
  openNodeSocket,
  withOptions,
  withServer,
} from '../up/local-server.js';
import { isAlive, readReadyFile } from '../up/process-identity.js';
import { buildRoot } from '../up/reachable-build.js';
import { stopDaemon } from '../up/stop-daemon.js';
import { supervise } from '../up/supervise.js';

/** Its options, beside those of the daemons. */
export interface UpOptions extends OutputOptions {
  detach?: boolean;
  restart?: boolean;
  ifStale?: boolean;
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
  if (wanted !== kept)
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

/** In the order in which they are started. */
const daemons = ['nodeAgent', 'controlPlane'] as const;

/** Starts the daemons that do not run, or have to be renewed; gives their roles. The flags of the first that is started are kept, whatever becomes of the second. */
export async function startWhatIsMissing(
  context: Pick<CliContext, 'out'>,
  kept: LocalServer,
  wanted: LocalServer,
  options: UpOptions,
): Promise<string[]> {
  const started: string[] = [];
  // Before anything is started: a node agent whose control plane cannot listen would stay behind.
  for (const daemon of daemons) {
    const moves = addressOf(kept[daemon]) !== addressOf(wanted[daemon]);
    const isOurs = !moves && isAlive(readReadyFile(kept[daemon].readyFile));
    if (!isOurs) await requireFreeAddress(wanted[daemon]);
  }
  for (const daemon of daemons) {
    // One that runs is found where the old flags put it.
    if (!(await mustStart(context, kept[daemon], options))) continue;
    await requireFreeAddress(wanted[daemon]);
    context.out.note(`starting the ${wanted[daemon].role} …`);
    await startDaemon(wanted[daemon]);
    started.push(wanted[daemon].role);
    // Here and not at the end: what runs with them is found by them, also when the other daemon fails.
    if (started.length === 1) keepOptions(wanted);
    if (daemon === 'nodeAgent') openNodeSocket(wanted);
  }
  return started;
}

/** Where it listens, with TLS or without. */
function addressOf({ health }: DaemonSpec): string {
  return 'url' in health ? new URL(health.url).host : health.socketPath;
}

/** True when the daemon is to be started now; ends one that has to go first. */
async function mustStart(
  context: Pick<CliContext, 'out'>,
  spec: DaemonSpec,
  options: UpOptions,
): Promise<boolean> {
  const stale = isStale(spec.role, buildRoot, spec.readyFile);
  if (await isRunning(spec)) {
    if (!options.restart && !(options.ifStale && stale)) {
      if (stale)
        context.out.note(`the ${spec.role} is older than this build; \`sandlot up --restart\` renews it`);
      return false;
    }
    context.out.note(
      `stopping the ${spec.role}${options.restart ? '' : ', which is older than this build'} …`,
    );
    if ((await stopDaemon(spec.readyFile)) === 'killed')
      context.out.note(`the ${spec.role} had to be killed`);
    return true;
  }
  const ready = readReadyFile(spec.readyFile);
  if (isAlive(ready)) {
    context.out.note(`the ${spec.role} (${ready.pid}) does not answer; renewing it`);
    await stopDaemon(spec.readyFile);
  }
  return true;
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
