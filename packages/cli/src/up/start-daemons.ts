/**
 * Which of the two daemons of a server have to be started, and their start in order; what runs and is to be renewed is
 * stopped first. Used by `up`.
 */
import type { CliContext } from '../context.js';
import { isStale } from './build-time.js';
import { type DaemonSpec, isRunning, startDaemon } from './daemon.js';
import { requireFreeAddress } from './free-address.js';
import { keepOptions, type LocalServer, openNodeSocket } from './local-server.js';
import { endpointOf } from './options.js';
import { isAlive, readReadyFile } from './process-identity.js';
import { buildRoot } from './reachable-build.js';
import { stopDaemon } from './stop-daemon.js';

/** Which of the daemons that run are renewed. */
export interface RenewOptions {
  restart?: boolean;
  ifStale?: boolean;
}

/** In the order in which they are started. */
const daemons = ['nodeAgent', 'controlPlane'] as const;

/** Starts the daemons that do not run, or have to be renewed; gives their roles. The flags of the first that is started are kept, whatever becomes of the second. */
export async function startWhatIsMissing(
  context: Pick<CliContext, 'out'>,
  kept: LocalServer,
  wanted: LocalServer,
  options: RenewOptions,
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
  if (!('url' in health)) return health.socketPath;
  const { host, port } = endpointOf(new URL(health.url));
  return `${host}:${port}`;
}

/** True when the daemon is to be started now; ends one that has to go first. */
async function mustStart(
  context: Pick<CliContext, 'out'>,
  spec: DaemonSpec,
  options: RenewOptions,
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
