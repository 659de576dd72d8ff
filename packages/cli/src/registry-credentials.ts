/**
 * Names and passwords for image registries: from Docker's own file, where `docker login` leaves them,
 * or from flags and standard input. They are sent with one pull and kept nowhere. Used by `image pull`,
 * `create` and `run --image`.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { RegistryAuth } from '@sandlot/sdk';
import { CliError, exitCodes } from './cli-error.js';
import type { CliContext } from './context.js';

/** Longest password that is read; tokens of cloud registries have some 3,000 characters. */
const passwordMaxBytes = 64 * 1024;
/** Docker Hub's names for itself. */
const dockerHub: ReadonlySet<string> = new Set(['docker.io', 'index.docker.io', 'registry-1.docker.io']);

/** Flags of a login. */
export interface LoginOptions {
  username?: string;
  passwordStdin?: boolean;
}

/** What the flags say; undefined when there are none. */
export async function givenCredentials(
  context: CliContext,
  options: LoginOptions,
): Promise<RegistryAuth | undefined> {
  if (options.username === undefined && !options.passwordStdin) return undefined;
  if (!options.username || !options.passwordStdin) {
    throw new CliError(`${options.username ? '--password-stdin' : '--username'} is missing`, {
      hint: 'Give both: --username NAME --password-stdin, and the password on standard input.',
      exitCode: exitCodes.usage,
    });
  }
  if (context.stdin.isTTY) {
    throw new CliError('--password-stdin: standard input is a terminal, which would show the password', {
      hint: 'Send it through a pipe or from a file: … --password-stdin < FILE, or use `docker login` once.',
      exitCode: exitCodes.usage,
    });
  }
  const password = await readPassword(context);
  if (password === '') {
    throw new CliError('--password-stdin: nothing came on standard input', {
      hint: 'Send the password through a pipe or from a file: … --password-stdin < FILE',
      exitCode: exitCodes.usage,
    });
  }
  return { username: options.username, password };
}

/** What Docker's file has for the registry of an image. */
export interface DockerLogin {
  /** The login; undefined when there is none, or the way to the server is open. */
  auth?: RegistryAuth | undefined;
  /** The program that holds it instead. We do not run it. */
  helper?: string | undefined;
}

/** The login in Docker's file for the registry of an image; says so when a credential helper holds it. */
export function dockerCredentials(context: CliContext, image: string): RegistryAuth | undefined {
  const { auth, helper } = dockerLogin(context, image);
  if (helper !== undefined) noteHelper(context, image, helper);
  return auth;
}

/** Says that a login is not used, because a credential helper holds it. */
export function noteHelper(context: CliContext, image: string, helper: string): void {
  context.out.note(
    `Docker's login for ${fullName(image).split('/')[0]} is held by the credential helper "${helper}", which is not asked. A private image needs \`sandlot image pull --username NAME --password-stdin ${image}\``,
  );
}

/** Looks into Docker's file. */
export function dockerLogin(context: CliContext, image: string): DockerLogin {
  const file = path.join(
    context.env['DOCKER_CONFIG'] || path.join(context.homeFolder, '.docker'),
    'config.json',
  );
  const config = readConfig(context, file);
  const auth = findEntry(config.auths, image);
  if (!auth) return { helper: findHelper(config, image) };
  if (isPrivateWay(context.settings().url.value)) return { auth };
  context.out.note(
    `the login for this registry in ${file} is not sent: the way to the server is not encrypted. Use https, or --username and --password-stdin of \`image pull\` to send it all the same`,
  );
  return {};
}

async function readPassword(context: CliContext): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of context.stdin as AsyncIterable<Uint8Array>) {
    chunks.push(Buffer.from(chunk));
    size += chunk.length;
    if (size > passwordMaxBytes) {
      throw new CliError(`--password-stdin: more than ${passwordMaxBytes} bytes came, which is no password`, {
        hint: 'Send the password alone.',
        exitCode: exitCodes.usage,
      });
    }
  }
  // The end of line is `echo`'s, not the password's.
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

/** The parts of Docker's file that say something of logins. */
interface DockerConfig {
  auths: Record<string, unknown>;
  /** Helpers of single registries. */
  credHelpers: Record<string, unknown>;
  /** The helper of all others. */
  credsStore: unknown;
}

function readConfig(context: CliContext, file: string): DockerConfig {
  const none = { auths: {}, credHelpers: {}, credsStore: undefined };
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    // No file, or not ours to read: no login.
    return none;
  }
  try {
    const config = (JSON.parse(text) ?? {}) as Record<string, unknown>;
    const part = (name: string) => {
      const value = config[name];
      return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
    };
    return { auths: part('auths'), credHelpers: part('credHelpers'), credsStore: config['credsStore'] };
  } catch {
    context.out.note(`${file} is not valid JSON; logins in it are not used`);
    return none;
  }
}

/** The entry whose name is the longest beginning of the image's: `quay.io/team` goes before `quay.io`. */
function findEntry(auths: Record<string, unknown>, image: string): RegistryAuth | undefined {
  const name = fullName(image);
  let best: { length: number; auth: RegistryAuth } | undefined;
  for (const [key, entry] of Object.entries(auths)) {
    const scope = scopeOf(key);
    const auth = isWithin(name, scope) ? decode(entry) : undefined;
    if (auth && scope.length > (best?.length ?? 0)) best = { length: scope.length, auth };
  }
  return best?.auth;
}

/** The helper that holds a login for the image's registry. After a login, Docker leaves an empty entry beside the one for all. */
function findHelper({ auths, credHelpers, credsStore }: DockerConfig, image: string): string | undefined {
  const name = fullName(image);
  const own = Object.entries(credHelpers).find(([key]) => isWithin(name, scopeOf(key)))?.[1];
  const wasUsed = Object.keys(auths).some((key) => isWithin(name, scopeOf(key)));
  const helper = own ?? (wasUsed ? credsStore : undefined);
  return typeof helper === 'string' && helper !== '' ? helper : undefined;
}

function isWithin(name: string, scope: string): boolean {
  return name === scope || name.startsWith(`${scope}/`);
}

/** `registry/repository`, as Docker reads a reference: without a dot, port or `localhost` its first part is no registry. */
function fullName(image: string): string {
  const name = image.replace(/@.*$/, '').replace(/:[^/:]*$/, '');
  const [first = '', ...rest] = name.split('/');
  const hasRegistry = rest.length > 0 && (first === 'localhost' || /[.:]/.test(first));
  if (!hasRegistry) return `docker.io/${rest.length === 0 ? `library/${name}` : name}`;
  return dockerHub.has(first) ? ['docker.io', ...rest].join('/') : name;
}

/** `https://index.docker.io/v1/`, `https://host:5000` and `host/team` as the beginning of a full name. */
function scopeOf(key: string): string {
  const scope = key
    .replace(/^https?:\/\//, '')
    .replace(/\/+$/, '')
    .replace(/\/v[12]$/, '');
  return dockerHub.has(scope) ? 'docker.io' : scope;
}

/** `{auth: base64 of name:password}`, or `{username, password}`; an entry of a credential helper is empty. */
function decode(entry: unknown): RegistryAuth | undefined {
  if (typeof entry !== 'object' || entry === null) return undefined;
  const { auth, username, password } = entry as Record<string, unknown>;
  if (typeof username === 'string' && typeof password === 'string' && username && password)
    return { username, password };
  if (typeof auth !== 'string') return undefined;
  const text = Buffer.from(auth, 'base64').toString('utf8');
  const at = text.indexOf(':');
  if (at < 1 || at === text.length - 1) return undefined;
  return { username: text.slice(0, at), password: text.slice(at + 1) };
}

/** True where nobody on the way can listen. */
function isPrivateWay(url: string): boolean {
  if (url.startsWith('unix:')) return true;
  const { protocol, hostname } = new URL(url);
  return (
    protocol === 'https:' || hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.')
  );
}
