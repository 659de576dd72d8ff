/** The node agent's command line. Read by `main.ts`; `sandlot up` writes it. */
import { parseArgs } from 'node:util';
import { parseCidr } from '@sandlot/protocol';

/** Everything that can be set. */
export interface NodeAgentOptions {
  dataFolder: string;
  socketPath: string;
  publicKeyPath: string;
  /** Four hex digits; in the name of everything we make on the host. */
  instanceId: string;
  guestAssets: string;
  kvm: 'auto' | 'never';
  /** QEMU's name of the processor that guests on KVM see. */
  cpuModel: string;
  driver: 'qemu' | 'fake';
  /** For the fake driver: the guest agent's binary, run as a process of the host. */
  agentBinary: string;
  cpuOvercommit: number;
  memoryOvercommit: number;
  diskOvercommit: number;
  allowPrivate: string[];
  allowHostPorts: number[];
  subnet: string | undefined;
  rootlessNetwork: boolean;
  /** Children that touch untrusted bytes run as this user; undefined without root. */
  runChildrenAs: { uid: number; gid: number } | undefined;
  poolSize: number;
  insecureRegistries: string[];
  /** Templates built at start: `VCPUSxMIB`. */
  prebuild: { vcpus: number; memoryMiB: number }[];
  readyFile: string | undefined;
  /** Folder of the daemons' logs, which are kept small; undefined: they are somebody else's matter. */
  logFolder: string | undefined;
  logLevel: string;
  /** Only read the flags, then end: `up` asks so before it stops a running agent. */
  checkOnly: boolean;
}

/** A flag that cannot be used; the message names it. */
export class OptionError extends Error {
  override name = 'OptionError';
}

/** @throws OptionError */
export function parseOptions(argv: string[]): NodeAgentOptions {
  const { values } = parseArgs({
    args: argv,
    options: {
      data: { type: 'string' },
      socket: { type: 'string' },
      'public-key': { type: 'string' },
      instance: { type: 'string', default: '0000' },
      'guest-assets': { type: 'string', default: '' },
      kvm: { type: 'string', default: 'auto' },
      'cpu-model': { type: 'string', default: 'host' },
      driver: { type: 'string', default: 'qemu' },
      'agent-binary': { type: 'string', default: '' },
      'cpu-overcommit': { type: 'string', default: '8' },
      'memory-overcommit': { type: 'string', default: '2' },
      'disk-overcommit': { type: 'string', default: '4' },
      'allow-private': { type: 'string', multiple: true, default: [] },
      'allow-host-port': { type: 'string', multiple: true, default: [] },
      subnet: { type: 'string' },
      'rootless-network': { type: 'boolean', default: false },
      'run-children-as': { type: 'string' },
      'pool-size': { type: 'string', default: '8' },
      'insecure-registry': { type: 'string', multiple: true, default: [] },
      prebuild: { type: 'string', multiple: true, default: ['1x1024', '1x2048'] },
      'ready-file': { type: 'string' },
      'log-folder': { type: 'string' },
      'log-level': { type: 'string', default: 'info' },
      'check-options': { type: 'boolean', default: false },
    },
  });
  const required = (name: 'data' | 'socket' | 'public-key'): string => {
    const value = values[name];
    if (!value) throw new OptionError(`--${name} is missing`);
    return value;
  };
  if (!/^[0-9a-f]{4}$/.test(values.instance)) throw new OptionError('--instance must be four hex digits');
  return {
    dataFolder: required('data'),
    socketPath: required('socket'),
    publicKeyPath: required('public-key'),
    instanceId: values.instance,
    guestAssets: values['guest-assets'],
    kvm: oneOf('kvm', values.kvm, ['auto', 'never']),
    cpuModel: parseCpuModel(values['cpu-model']),
    driver: oneOf('driver', values.driver, ['qemu', 'fake']),
    agentBinary: values['agent-binary'],
    cpuOvercommit: positive('cpu-overcommit', values['cpu-overcommit']),
    memoryOvercommit: positive('memory-overcommit', values['memory-overcommit']),
    diskOvercommit: positive('disk-overcommit', values['disk-overcommit']),
    allowPrivate: values['allow-private'].map((text) => parseRange('allow-private', text)),
    allowHostPorts: values['allow-host-port'].map(parsePort),
    subnet: values.subnet === undefined ? undefined : parseRange('subnet', values.subnet),
    rootlessNetwork: values['rootless-network'],
    runChildrenAs: values['run-children-as'] ? parseRunAs(values['run-children-as']) : undefined,
    poolSize: positive('pool-size', values['pool-size']),
    insecureRegistries: values['insecure-registry'],
    prebuild: values.prebuild.filter((text) => text !== 'none').map(parseShape),
    readyFile: values['ready-file'],
    logFolder: values['log-folder'],
    logLevel: values['log-level'],
    checkOnly: values['check-options'],
  };
}

function oneOf<T extends string>(name: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((candidate) => candidate === value);
  if (!found) throw new OptionError(`--${name} must be one of ${allowed.join(', ')}, got ${value}`);
  return found;
}

/** A name, and changes to it such as `,vme=off`. */
function parseCpuModel(text: string): string {
  if (!/^[\w.-]+(,[\w.-]+=(on|off))*$/.test(text))
    throw new OptionError(`--cpu-model must be a name that qemu-system-x86_64 -cpu help lists, got ${text}`);
  return text;
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!(value > 0) || !Number.isFinite(value))
    throw new OptionError(`--${name} must be a number above 0, got ${text}`);
  return value;
}

function parseRange(name: string, text: string): string {
  if (!parseCidr(text)) throw new OptionError(`--${name} must be a range such as 10.20.0.0/16, got ${text}`);
  return text;
}

function parsePort(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port < 1 || port > 65_535)
    throw new OptionError(`--allow-host-port must be a port from 1 to 65535, got ${text}`);
  return port;
}

function parseRunAs(text: string): { uid: number; gid: number } {
  const match = /^(\d+):(\d+)$/.exec(text);
  if (!match) throw new OptionError(`--run-children-as must be UID:GID, got ${text}`);
  return { uid: Number(match[1]), gid: Number(match[2]) };
}

function parseShape(text: string): { vcpus: number; memoryMiB: number } {
  const match = /^(\d+)x(\d+)$/.exec(text);
  if (!match) throw new OptionError(`--prebuild must be VCPUSxMIB or none, got ${text}`);
  return { vcpus: Number(match[1]), memoryMiB: Number(match[2]) };
}
