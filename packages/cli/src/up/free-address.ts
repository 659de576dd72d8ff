/**
 * Whether the address of a daemon is free: somebody else's server there would let the health check pass for
 * the wrong process, or keep ours from listening. Asked by `up` before anything is started.
 */
import net from 'node:net';
import { CliError, exitCodes } from '../cli-error.js';
import type { DaemonSpec } from './daemon.js';
import { endpointOf } from './options.js';

/** A listener of this machine takes a connection at once; one that does not is no listener. */
const connectTimeoutMs = 2_000;

/** Throws when anything listens where the daemon is to. One without an address of its own (a socket below our data) is always free. */
export async function requireFreeAddress({ role, health }: DaemonSpec): Promise<void> {
  if (!('url' in health) || !(await isTaken(new URL(health.url)))) return;
  throw new CliError(`something else already listens on ${health.url}, where the ${role} is to`, {
    hint: 'Another instance? `sandlot status` shows it, `ss -ltnp` names any other. Stop it, or choose another address with --listen.',
    exitCode: exitCodes.failed,
  });
}

function isTaken(url: URL): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = net.connect(endpointOf(url));
    const finish = (taken: boolean) => {
      socket.destroy();
      resolve(taken);
    };
    socket.setTimeout(connectTimeoutMs, () => finish(false));
    socket.once('connect', () => finish(true));
    socket.once('error', () => finish(false));
  });
}
