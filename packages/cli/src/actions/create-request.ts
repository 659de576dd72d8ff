/** The options of a new sandbox as the SDK wants them. Used by `create` and `run --image`. Pure. */
import type { CreateSandbox } from '@sandlot/sdk';
import { CliError, exitCodes } from '../cli-error.js';
import { parseDuration, parsePairs } from '../output/units.js';

/** Options that describe a sandbox. */
export interface ShapeOptions {
  cpu?: number;
  memory?: number;
  disk?: number;
  env?: string[];
  secret?: string[];
  label?: string[];
  name?: string;
  team?: string;
  timeout?: string;
  idleTimeout?: string;
  idleAction?: 'end' | 'pause';
  networkAllow?: string[];
  networkDeny?: string[];
}

/** The request, without a start command. */
export function createRequest(
  image: string | undefined,
  options: ShapeOptions,
  env: Record<string, string | undefined>,
): CreateSandbox {
  if (image?.trim() === '') {
    throw new CliError('an image name is missing', {
      hint: 'Name one, such as python:3.11-slim, or a --checkpoint; `sandlot image ls` shows images that are here.',
      exitCode: exitCodes.usage,
    });
  }
  if (options.networkAllow && options.networkDeny) {
    throw new CliError('--network-allow and --network-deny exclude each other', {
      exitCode: exitCodes.usage,
    });
  }
  return {
    image,
    name: options.name,
    cpu: options.cpu,
    memoryGiB: options.memory,
    diskGiB: options.disk,
    env: options.env && parsePairs(options.env, env, '--env'),
    secrets: options.secret && parsePairs(options.secret, env, '--secret'),
    labels: options.label,
    teamId: options.team,
    timeoutMinutes: options.timeout === undefined ? undefined : minutes(options.timeout, '--timeout'),
    idleTimeoutMinutes:
      options.idleTimeout === undefined ? undefined : minutes(options.idleTimeout, '--idle-timeout'),
    idleAction: options.idleAction,
    ...network(options),
  };
}

/** What of the times is not taken as it was given: a lifetime counts in whole minutes. */
export function roundedTimes({ timeout, idleTimeout }: ShapeOptions): string[] {
  return [['--timeout', timeout] as const, ['--idle-timeout', idleTimeout] as const].flatMap(
    ([option, text]) => {
      if (text === undefined || text.trim().startsWith('-')) return [];
      const rounded = minutes(text, option);
      if (parseDuration(text, 'min', option) === rounded * 60) return [];
      return [
        `${option} ${text}: rounded up to ${rounded} minute${rounded === 1 ? '' : 's'}, as it counts in whole minutes`,
      ];
    },
  );
}

/** A lifetime in whole minutes, as the API counts it; negative is unlimited. */
export function minutes(text: string, option: string): number {
  if (text.trim().startsWith('-')) return -1;
  return Math.ceil(parseDuration(text, 'min', option) / 60);
}

function network({ networkAllow, networkDeny }: ShapeOptions) {
  // Nothing may be reached: an empty list of what may.
  if (networkDeny?.includes('*')) return { networkAllowlist: [] };
  return { networkAllowlist: networkAllow, networkDenylist: networkDeny };
}
