/**
 * Where the server is, with which key, and where this machine's data lies: environment, then the
 * configuration file, then the defaults. Read by every command; written by `up` and `config set`.
 */
import { chownSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { CliError } from './cli-error.js';

/** A value and who said so. */
export interface Setting {
  value: string;
  from: 'environment' | 'file' | 'default';
}

/** All settings. */
export interface Settings {
  url: Setting;
  apiKey: Setting | undefined;
  data: Setting;
  file: string;
}

/** Content of the configuration file. */
export interface ConfigFile {
  url?: string;
  api_key?: string;
  data?: string;
}

/** The server on this machine. */
export const localUrl = 'http://127.0.0.1:7070';

/** Path of the configuration file. */
export function configPath(homeFolder: string, env: Record<string, string | undefined> = {}): string {
  return path.join(env['XDG_CONFIG_HOME'] || path.join(homeFolder, '.config'), 'sandlot', 'config.json');
}

/** Resolves everything; a file that cannot be read as JSON is an error that names it. */
export function readSettings(
  env: Record<string, string | undefined>,
  homeFolder: string,
  isRoot: boolean,
): Settings {
  const file = configPath(homeFolder, env);
  const config = readConfigFile(file);
  const standard = isRoot ? '/var/lib/sandlot' : path.join(homeFolder, '.local', 'share', 'sandlot');
  return {
    url: choose(env['SANDLOT_URL'], config.url, localUrl) as Setting,
    apiKey: choose(env['SANDLOT_API_KEY'], config.api_key, undefined),
    data: choose(env['SANDLOT_DATA'], config.data, standard) as Setting,
    file,
  };
}

/** The file's content; `{}` when there is none. */
export function readConfigFile(file: string): ConfigFile {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw new CliError(`${file} cannot be read`, { cause, hint: 'Check its owner and mode.' });
  }
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed !== null && typeof parsed === 'object' && !Array.isArray(parsed)) return parsed as ConfigFile;
    throw new Error('it is not an object');
  } catch (cause) {
    throw new CliError(`${file} is not valid JSON`, {
      cause,
      hint: 'Mend it, or remove it and run `sandlot up`.',
    });
  }
}

/** Changes some values of the file, which only its owner may read: it holds a key. */
export function writeConfigFile(
  file: string,
  change: { [Name in keyof ConfigFile]: ConfigFile[Name] | undefined },
  owner?: { uid: number; gid: number },
): void {
  const next: Record<string, unknown> = { ...readConfigFile(file) };
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined) delete next[name];
    else next[name] = value;
  }
  for (const folder of [path.dirname(path.dirname(file)), path.dirname(file)]) makeFolder(folder, owner);
  // Whole or not at all: a reader at this moment must not see half a file.
  writeFileSync(`${file}.new`, `${JSON.stringify(next, null, 2)}\n`, { mode: 0o600 });
  if (owner) chownSync(`${file}.new`, owner.uid, owner.gid);
  renameSync(`${file}.new`, file);
}

function makeFolder(folder: string, owner: { uid: number; gid: number } | undefined): void {
  try {
    statSync(folder);
  } catch {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (owner) chownSync(folder, owner.uid, owner.gid);
  }
}

function choose(
  fromEnvironment: string | undefined,
  fromFile: string | undefined,
  standard: string | undefined,
): Setting | undefined {
  if (fromEnvironment) return { value: fromEnvironment, from: 'environment' };
  if (fromFile) return { value: fromFile, from: 'file' };
  return standard === undefined ? undefined : { value: standard, from: 'default' };
}
