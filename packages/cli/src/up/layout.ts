/** Where everything of one instance lies on this machine. Used by `up`, `down` and `doctor`. */
import { createHash } from 'node:crypto';
import { mkdirSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { CliError } from '../cli-error.js';

/** Paths of an instance. */
export interface Layout {
  data: string;
  controlPlane: string;
  node: string;
  keys: string;
  run: string;
  logs: string;
  /** What `up` keeps about the instance. */
  instanceFile: string;
  nodeSocket: string;
  adminSocket: string;
  nodeReady: string;
  controlPlaneReady: string;
  gatewayPublicKey: string;
  /** Where the build is made reachable for the service user, if it is not by itself. */
  build: string;
}

/** Paths below the data folder. */
export function layoutOf(data: string): Layout {
  const at = (...parts: string[]) => path.join(data, ...parts);
  return {
    data,
    controlPlane: at('control-plane'),
    node: at('node'),
    keys: at('keys'),
    run: at('run'),
    logs: at('logs'),
    instanceFile: at('instance.json'),
    nodeSocket: at('run', 'node.sock'),
    adminSocket: at('run', 'admin.sock'),
    nodeReady: at('run', 'node.json'),
    controlPlaneReady: at('run', 'control-plane.json'),
    gatewayPublicKey: at('keys', 'gateway.pub'),
    build: at('run', 'build'),
  };
}

/**
 * Makes the data folder and answers its real path: the instance id is made from that.
 * @throws CliError for a place where no folder can be made
 */
export function makeDataFolder(data: string): string {
  try {
    makeFolders(path.resolve(data));
    return realpathSync(data);
  } catch (cause) {
    throw new CliError(`cannot make the data folder ${data}: ${(cause as Error).message}`, {
      hint: 'Name another one with --data or SANDLOT_DATA, on a file system that is written to.',
      cause,
    });
  }
}

/** One by one: Node's own recursive way never ends where a folder is there and nothing can be made in it (/proc). */
function makeFolders(folder: string): void {
  const found = statSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory()) return;
  if (found) throw new Error('there is a file of that name');
  makeFolders(path.dirname(folder));
  try {
    mkdirSync(folder, { mode: 0o711 });
  } catch (error) {
    // Somebody else was faster.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** Four hex digits that stand in every name an instance makes on the host. */
export function instanceIdOf(realDataPath: string): string {
  return createHash('sha256').update(realDataPath).digest('hex').slice(0, 4);
}
