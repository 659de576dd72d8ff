/** Where everything of one instance lies on this machine. Used by `up`, `down` and `doctor`. */
import { createHash } from 'node:crypto';
import { mkdirSync, realpathSync } from 'node:fs';
import path from 'node:path';

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

/** Makes the data folder and answers its real path: the instance id is made from that. */
export function makeDataFolder(data: string): string {
  mkdirSync(data, { recursive: true, mode: 0o711 });
  return realpathSync(data);
}

/** Four hex digits that stand in every name an instance makes on the host. */
export function instanceIdOf(realDataPath: string): string {
  return createHash('sha256').update(realDataPath).digest('hex').slice(0, 4);
}
