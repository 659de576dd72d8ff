/**
 * The server of this machine: its folders, users, keys and daemons, started in their order (the
 * node agent before the control plane) and stopped in the reverse one. Used by `up` and `down`;
 * a process that dies in here leaves folders and daemons that the next `up` takes over.
 */
import { chmodSync, chownSync, existsSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { CliError } from '../cli-error.js';
import type { DaemonSpec } from './daemon.js';
import { type Instance, readInstance, writeInstance } from './instance.js';
import { ensureGatewayKeys } from './keys.js';
import { instanceIdOf, type Layout, layoutOf, makeDataFolder } from './layout.js';
import { withLock } from './lock.js';
import { controlPlaneArguments, mergeOptions, nodeAgentArguments, urlsOf } from './options.js';
import { buildRoot, makeBuildReachable } from './reachable-build.js';
import { ensureServiceUser, type UserIds } from './service-user.js';

/** A server that is prepared: everything but its processes. */
export interface LocalServer {
  layout: Layout;
  instance: Instance;
  /** For clients on this machine: with TLS by the name that the certificate is for, as far as we know it. */
  url: string;
  nodeAgent: DaemonSpec;
  controlPlane: DaemonSpec;
  serviceUser: UserIds | undefined;
}

/** Opening stores, adopting machines and probing KVM take their time on a busy host. */
const nodeStartTimeoutMs = 180_000;
const controlPlaneStartTimeoutMs = 60_000;

/**
 * Runs `work` with the server of a data folder while nobody else starts or stops it. What is kept is read under the
 * lock: of two first `up` at once the second finds the keys and flags of the first. `onWait` is told once who holds it.
 */
export async function withServer<T>(
  data: string,
  isRoot: boolean,
  onWait: (pid: number) => void,
  work: (server: LocalServer) => Promise<T>,
): Promise<T> {
  const { run } = layoutOf(makeDataFolder(data));
  mkdirSync(run, { recursive: true, mode: 0o700 });
  return withLock(run, onWait, () => work(prepareServer(data, isRoot)));
}

/**
 * Makes folders, user, keys and `instance.json`, and the daemons' command lines by the flags that were
 * kept. Changes nothing that runs. Under the lock only: see {@link withServer}.
 */
export function prepareServer(data: string, isRoot: boolean): LocalServer {
  const real = makeDataFolder(data);
  const layout = layoutOf(real);
  const serviceUser = isRoot ? ensureServiceUser() : undefined;
  makeFolders(layout, serviceUser);
  ensureGatewayKeys(layout, serviceUser);
  const kept = readInstance(layout.instanceFile);
  const instance: Instance = {
    instanceId: instanceIdOf(real),
    createdAt: kept?.createdAt ?? new Date().toISOString(),
    options: { guestAssets: defaultGuestAssets(layout), ...kept?.options },
  };
  writeInstance(layout.instanceFile, instance);
  return { layout, instance, serviceUser, ...daemonSpecs(layout, instance, serviceUser) };
}

/** The same server with the flags that are given now; the same object when they change nothing. Keep them by {@link keepOptions}. */
export function withOptions(server: LocalServer, given: Record<string, unknown>): LocalServer {
  const { layout, serviceUser } = server;
  const options = mergeOptions(server.instance.options, given);
  for (const name of ['guestAssets', 'tlsCert', 'tlsKey'] as const)
    if (options[name] !== undefined) options[name] = path.resolve(options[name]);
  if (isDeepStrictEqual(options, server.instance.options)) return server;
  const instance = { ...server.instance, options };
  return { layout, instance, serviceUser, ...daemonSpecs(layout, instance, serviceUser) };
}

/** Makes the flags of a server those of the next `up`, too: once a daemon has started with them. */
export function keepOptions({ layout, instance }: LocalServer): void {
  writeInstance(layout.instanceFile, instance);
}

/** The daemons of a prepared instance. */
function daemonSpecs(layout: Layout, { instanceId, options }: Instance, serviceUser: UserIds | undefined) {
  const map = makeBuildReachable(layout.build, serviceUser);
  const { listenUrl, url } = urlsOf(options);
  const mapped = { ...options, ...(options.guestAssets ? { guestAssets: map(options.guestAssets) } : {}) };
  const nodeAgent: DaemonSpec = {
    role: 'node agent',
    main: map(mainOf('node-agent')),
    args: nodeAgentArguments(layout, instanceId, mapped, serviceUser),
    logFile: path.join(layout.logs, 'node-agent.log'),
    readyFile: layout.nodeReady,
    health: { socketPath: layout.nodeSocket },
    startTimeoutMs: nodeStartTimeoutMs,
  };
  const controlPlane: DaemonSpec = {
    role: 'control plane',
    main: map(mainOf('control-plane')),
    args: controlPlaneArguments(layout, options),
    user: serviceUser,
    logFile: path.join(layout.logs, 'control-plane.log'),
    readyFile: layout.controlPlaneReady,
    health: { url: listenUrl },
    startTimeoutMs: controlPlaneStartTimeoutMs,
  };
  return { url, nodeAgent, controlPlane };
}

/** Lets the control plane, which is not root, speak to the node agent. */
export function openNodeSocket(server: LocalServer): void {
  if (!server.serviceUser) return;
  chownSync(server.layout.nodeSocket, 0, server.serviceUser.gid);
  chmodSync(server.layout.nodeSocket, 0o660);
}

function makeFolders(layout: Layout, user: UserIds | undefined): void {
  const mine: [string, number][] = [
    [layout.node, 0o711],
    [layout.logs, 0o755],
  ];
  for (const [folder, mode] of mine) {
    mkdirSync(folder, { recursive: true, mode });
    chmodSync(folder, mode);
  }
  mkdirSync(layout.controlPlane, { recursive: true, mode: 0o700 });
  if (user) chownSync(layout.controlPlane, user.uid, user.gid);
  // Both daemons put files here; the sticky bit keeps each from replacing the other's.
  mkdirSync(layout.run, { recursive: true });
  if (user) chownSync(layout.run, 0, user.gid);
  chmodSync(layout.run, user ? 0o1771 : 0o700);
  chmodSync(layout.data, 0o711);
}

function mainOf(name: string): string {
  const file = path.join(buildRoot, 'packages', name, 'dist', 'main.js');
  if (!existsSync(file)) {
    throw new CliError(`there is no ${file}: this checkout is not built`, {
      hint: `Run \`make build\` in ${buildRoot}.`,
    });
  }
  return file;
}

function defaultGuestAssets(layout: Layout): string {
  const ofCheckout = path.join(buildRoot, '.cache', 'guest');
  return existsSync(ofCheckout) ? ofCheckout : path.join(layout.data, 'guest');
}
