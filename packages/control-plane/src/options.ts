/** Flags of the control plane's process. Parsed here and nowhere else. */
import { isIP } from 'node:net';
import { dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';

/** Where certificate and key of the TLS listener are. */
export interface CertificateFiles {
  certPath: string;
  keyPath: string;
}

/** What a control plane needs to run. */
export interface ControlPlaneOptions {
  /** Folder of the database; ours alone. */
  dataFolder: string;
  /** Folder of key material, outside the database: `gateway.key`, `gateway.pub`, `secrets.key`. */
  keysFolder: string;
  host: string;
  port: number;
  nodeSocket: string;
  adminSocket: string;
  publicUrl?: string | undefined;
  /** PEM files of certificate and key; with them the public port speaks TLS only. */
  tls?: CertificateFiles | undefined;
  trustedProxies: readonly string[];
  /** Shown by `status`; the parent of `dataFolder` when absent. */
  shownDataFolder?: string | undefined;
}

/** Options of the process beside those of the server. */
export interface ProcessOptions {
  server: ControlPlaneOptions;
  readyFile?: string | undefined;
  logLevel: string;
  /** Only read the flags, then end: `up` asks so before it stops a running control plane. */
  checkOnly: boolean;
}

/** A flag that cannot be used. */
export class OptionError extends Error {
  override readonly name = 'OptionError';
}

/** Reads the command line. Throws {@link OptionError}. */
export function parseOptions(args: readonly string[]): ProcessOptions {
  const { values } = readFlags(args);
  const data = values.data;
  if (data === undefined) throw new OptionError('--data is missing: the folder for the database');
  const dataFolder = resolve(data);
  const parent = dirname(dataFolder);
  return {
    server: {
      dataFolder,
      keysFolder: resolve(values.keys ?? `${parent}/keys`),
      ...parseListen(values.listen),
      nodeSocket: resolve(values['node-socket'] ?? `${parent}/run/node.sock`),
      adminSocket: resolve(values['admin-socket'] ?? `${parent}/run/admin.sock`),
      publicUrl: parsePublicUrl(values['public-url']),
      tls: parseTls(values['tls-cert'], values['tls-key']),
      trustedProxies: values['trusted-proxy'].map(parseProxy),
      shownDataFolder: parent,
    },
    readyFile: values['ready-file'],
    logLevel: parseLogLevel(values['log-level']),
    checkOnly: values['check-options'],
  };
}

function readFlags(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        data: { type: 'string' },
        keys: { type: 'string' },
        listen: { type: 'string', default: '127.0.0.1:7070' },
        'node-socket': { type: 'string' },
        'admin-socket': { type: 'string' },
        'public-url': { type: 'string' },
        'tls-cert': { type: 'string' },
        'tls-key': { type: 'string' },
        'trusted-proxy': { type: 'string', multiple: true, default: [] },
        'ready-file': { type: 'string' },
        'log-level': { type: 'string', default: 'info' },
        'check-options': { type: 'boolean', default: false },
      },
    });
  } catch (cause) {
    throw new OptionError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

/** `host:port`, `[v6]:port`, `:port` or `port`. Without a host: loopback. */
function parseListen(text: string): { host: string; port: number } {
  const match = /^(?:(\[[0-9A-Fa-f:.]+\]|[^:[\]]*):)?(\d{1,5})$/.exec(text);
  const port = Number(match?.[2]);
  if (match === null || port > 65_535) throw new OptionError(`--listen must be HOST:PORT, got ${text}`);
  const host = (match[1] ?? '').replace(/^\[|\]$/g, '');
  return { host: host === '*' ? '0.0.0.0' : host || '127.0.0.1', port };
}

function parsePublicUrl(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  let url: URL;
  try {
    url = new URL(text);
  } catch (cause) {
    throw new OptionError(`--public-url must be a URL such as https://sandlot.example.org, got ${text}`, {
      cause,
    });
  }
  if (!['http:', 'https:'].includes(url.protocol) || url.search !== '' || url.hash !== '')
    throw new OptionError(`--public-url must be http or https, without query or fragment, got ${text}`);
  return text.replace(/\/+$/, '');
}

/** Both or neither. What is in them is checked by `edge/certificate.ts`. */
function parseTls(cert: string | undefined, key: string | undefined): ControlPlaneOptions['tls'] {
  if (cert !== undefined && key !== undefined) return { certPath: resolve(cert), keyPath: resolve(key) };
  if (cert === undefined && key === undefined) return undefined;
  const [given, missing] = key === undefined ? ['--tls-cert', '--tls-key'] : ['--tls-key', '--tls-cert'];
  throw new OptionError(`${given} needs ${missing}: TLS takes a certificate and its key`);
}

/** An address, or an address with a prefix length. */
function parseProxy(text: string): string {
  const [address = '', bits, ...rest] = text.split('/');
  const longest = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
  const isPrefix = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= longest);
  if (longest < 0 || !isPrefix || rest.length > 0)
    throw new OptionError(`--trusted-proxy must be an address or a CIDR such as 10.0.0.0/8, got ${text}`);
  return text;
}

function parseLogLevel(text: string): string {
  const levels = ['debug', 'info', 'warn', 'error', 'silent'];
  if (!levels.includes(text))
    throw new OptionError(`--log-level must be one of ${levels.join(', ')}, got ${text}`);
  return text;
}
