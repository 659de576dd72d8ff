/** The flags of `up`, what is kept of them, and the command lines of the two daemons. Pure. */
import type { Layout } from './layout.js';
import type { UserIds } from './service-user.js';

/** Flags that shape the daemons; kept in `instance.json` from `up` to `down`, so that `--restart` need not repeat them. */
export interface DaemonOptions {
  listen?: string;
  publicUrl?: string;
  tlsCert?: string;
  tlsKey?: string;
  trustedProxy?: string[];
  cpuOvercommit?: number;
  memoryOvercommit?: number;
  diskOvercommit?: number;
  allowPrivate?: string[];
  allowHostPort?: string[];
  subnet?: string;
  rootlessNetwork?: boolean;
  kvm?: 'auto' | 'never';
  cpuModel?: string;
  driver?: 'qemu' | 'fake';
  agentBinary?: string;
  prebuild?: string[];
  guestAssets?: string;
  insecureRegistry?: string[];
  poolSize?: number;
}

/** Names of all of them: what of commander's options belongs to the daemons. */
export const daemonOptionNames: readonly (keyof DaemonOptions)[] = [
  'listen',
  'publicUrl',
  'tlsCert',
  'tlsKey',
  'trustedProxy',
  'cpuOvercommit',
  'memoryOvercommit',
  'diskOvercommit',
  'allowPrivate',
  'allowHostPort',
  'subnet',
  'rootlessNetwork',
  'kvm',
  'cpuModel',
  'driver',
  'agentBinary',
  'prebuild',
  'guestAssets',
  'insecureRegistry',
  'poolSize',
];

/** Where the API listens unless told otherwise. */
export const defaultListen = '127.0.0.1:7070';

/** What was kept, changed by what is given now. */
export function mergeOptions(kept: DaemonOptions, given: Record<string, unknown>): DaemonOptions {
  const merged: Record<string, unknown> = { ...kept };
  for (const name of daemonOptionNames) if (given[name] !== undefined) merged[name] = given[name];
  return merged as DaemonOptions;
}

/** Arguments of the node agent. */
export function nodeAgentArguments(
  layout: Layout,
  instanceId: string,
  options: DaemonOptions,
  runChildrenAs: UserIds | undefined,
): string[] {
  return [
    ...['--data', layout.node, '--socket', layout.nodeSocket],
    ...['--public-key', layout.gatewayPublicKey, '--instance', instanceId],
    ...['--ready-file', layout.nodeReady, '--log-folder', layout.logs],
    ...flag('--guest-assets', options.guestAssets),
    ...flag('--kvm', options.kvm),
    ...flag('--cpu-model', options.cpuModel),
    ...flag('--driver', options.driver),
    ...flag('--agent-binary', options.agentBinary),
    ...flag('--cpu-overcommit', options.cpuOvercommit),
    ...flag('--memory-overcommit', options.memoryOvercommit),
    ...flag('--disk-overcommit', options.diskOvercommit),
    ...repeated('--allow-private', options.allowPrivate),
    ...repeated('--allow-host-port', options.allowHostPort),
    ...flag('--subnet', options.subnet),
    ...(options.rootlessNetwork ? ['--rootless-network'] : []),
    ...flag('--run-children-as', runChildrenAs && `${runChildrenAs.uid}:${runChildrenAs.gid}`),
    ...flag('--pool-size', options.poolSize),
    ...repeated('--insecure-registry', options.insecureRegistry),
    ...repeated('--prebuild', options.prebuild),
  ];
}

/** Arguments of the control plane. */
export function controlPlaneArguments(layout: Layout, options: DaemonOptions): string[] {
  return [
    ...['--data', layout.controlPlane, '--keys', layout.keys],
    ...['--listen', options.listen ?? defaultListen],
    ...['--node-socket', layout.nodeSocket, '--admin-socket', layout.adminSocket],
    ...['--ready-file', layout.controlPlaneReady],
    ...flag('--public-url', options.publicUrl),
    ...flag('--tls-cert', options.tlsCert),
    ...flag('--tls-key', options.tlsKey),
    ...repeated('--trusted-proxy', options.trustedProxy),
  ];
}

/** URL under which this machine reaches a listen address; an address that means "all" becomes loopback. */
export function localUrlOf(listen: string, scheme: 'http' | 'https' = 'http'): string {
  const match = /^(?:(.*):)?(\d+)$/.exec(listen);
  const host = match?.[1] ?? '';
  const isAll = host === '' || host === '0.0.0.0' || host === '::' || host === '[::]' || host === '*';
  return `${scheme}://${isAll ? '127.0.0.1' : host}:${match?.[2] ?? '7070'}`;
}

/** Where a server with these flags listens, and the URL for clients on this machine: with TLS the one that the certificate is for. */
export function urlsOf(options: DaemonOptions): { listenUrl: string; url: string } {
  const hasTls = options.tlsCert !== undefined || options.tlsKey !== undefined;
  const listenUrl = localUrlOf(options.listen ?? defaultListen, hasTls ? 'https' : 'http');
  return { listenUrl, url: (hasTls ? options.publicUrl?.replace(/\/+$/, '') : undefined) ?? listenUrl };
}

/** Address and port of a URL of ours, of which none has to name the port of its scheme. */
export function endpointOf(url: URL): { host: string; port: number } {
  const port = url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port);
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port };
}

function flag(name: string, value: string | number | undefined): string[] {
  return value === undefined ? [] : [name, String(value)];
}

function repeated(name: string, values: readonly string[] | undefined): string[] {
  return (values ?? []).flatMap((value) => [name, value]);
}
