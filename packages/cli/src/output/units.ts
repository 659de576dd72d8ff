/** Numbers and times for people, and back. Pure. */
import { CliError, exitCodes } from '../cli-error.js';

/** `1.5 GiB`. */
export function bytes(count: number): string {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let name = 0;
  while (value >= 1024 && name < names.length - 1) {
    value /= 1024;
    name++;
  }
  return `${name === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${names[name]}`;
}

/** `3 s`, `5 min`, `2 h`, `4 d` since then. */
export function age(iso: string | null | undefined, nowMs: number): string {
  const then = iso ? Date.parse(iso) : Number.NaN;
  if (Number.isNaN(then)) return '';
  const seconds = Math.max(0, Math.round((nowMs - then) / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

const unitSeconds: Record<string, number> = { s: 1, m: 60, min: 60, h: 3_600, d: 86_400 };

/** Seconds of `90`, `90s`, `5m`, `1.5h`, `1d`; a bare number counts in `bareUnit`. */
export function parseDuration(text: string, bareUnit: 's' | 'min', option: string): number {
  const match = /^(\d+(?:\.\d+)?)(s|min|m|h|d)?$/.exec(text.trim());
  const unit = unitSeconds[match?.[2] ?? bareUnit];
  if (!match?.[1] || unit === undefined) {
    throw new CliError(`${option}: "${text}" is not a time`, {
      hint: `Give a number, or one with a unit: 90s, 5m, 2h, 1d (without a unit: ${bareUnit === 's' ? 'seconds' : 'minutes'}).`,
      exitCode: exitCodes.usage,
    });
  }
  return Number(match[1]) * unit;
}

/** `NAME=VALUE` pairs; a bare `NAME` takes its value from the environment. */
export function parsePairs(
  texts: readonly string[],
  env: Record<string, string | undefined>,
  option: string,
): Record<string, string> {
  const pairs: Record<string, string> = {};
  for (const text of texts) {
    const at = text.indexOf('=');
    const name = at < 0 ? text : text.slice(0, at);
    const value = at < 0 ? env[name] : text.slice(at + 1);
    if (!/^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name)) {
      throw new CliError(`${option}: "${text}" does not begin with a variable's name`, {
        hint: `Give ${option} NAME=VALUE.`,
        exitCode: exitCodes.usage,
      });
    }
    if (value === undefined) {
      throw new CliError(`${option}: ${name} has no value here`, {
        hint: `Give ${option} ${name}=VALUE, or set ${name} in the environment.`,
        exitCode: exitCodes.usage,
      });
    }
    pairs[name] = value;
  }
  return pairs;
}
