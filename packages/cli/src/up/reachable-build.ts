/**
 * The control plane runs as a user of its own and must be able to read the build and Node itself.
 * A checkout below /root is closed to it: then the build is bound (read-only) into the data folder.
 * Nothing is copied; `down` takes the binding away.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { CliError } from '../cli-error.js';
import type { UserIds } from './service-user.js';

/** Root of the checkout or installation: the folder above `packages/`. */
export const buildRoot = path.resolve(import.meta.dirname, '..', '..', '..', '..');

/** Turns paths below the build into ones that the service user can read. */
export type PathMap = (file: string) => string;

/** Binds the build at `target` if the user cannot read it where it is. */
export function makeBuildReachable(target: string, user: UserIds | undefined): PathMap {
  if (!user || canTraverse(buildRoot, user)) return (file) => file;
  if (!canTraverse(process.execPath, user)) {
    throw new CliError(`Node.js (${process.execPath}) cannot be read by other users than root`, {
      hint: 'Install Node 20 or newer for all users (Debian 13: apt-get install nodejs), or set SANDLOT_NODE to one.',
    });
  }
  if (!isMounted(target)) {
    mkdirSync(target, { recursive: true, mode: 0o755 });
    try {
      execFileSync('mount', ['--bind', '-o', 'ro', buildRoot, target], { stdio: 'pipe', timeout: 10_000 });
    } catch (cause) {
      throw new CliError(`${buildRoot} is closed to the user "sandlot", and binding it to ${target} failed`, {
        cause,
        hint: `Put the checkout where others may read it (such as /opt/sandlot), or open its parent: chmod o+x ${path.dirname(buildRoot)}`,
      });
    }
  }
  return (file) =>
    file === buildRoot || file.startsWith(`${buildRoot}/`)
      ? path.join(target, path.relative(buildRoot, file))
      : file;
}

/** Takes the binding away; nothing happens when there is none. */
export function removeBuildBinding(target: string): void {
  if (isMounted(target)) execFileSync('umount', ['--lazy', target], { stdio: 'pipe', timeout: 10_000 });
  try {
    rmdirSync(target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** True when the user can walk to the path and read it, by the mode bits. */
export function canTraverse(file: string, user: UserIds): boolean {
  for (let at = file; ; at = path.dirname(at)) {
    const { mode, uid, gid } = statSync(at);
    const shift = uid === user.uid ? 6 : gid === user.gid ? 3 : 0;
    const needed = at === file ? 0o5 : 0o1;
    if (((mode >> shift) & needed) !== needed) return false;
    if (at === path.dirname(at)) return true;
  }
}

function isMounted(target: string): boolean {
  // Spaces and the like stand as octal escapes there (proc(5), mounts).
  const escaped = target.replace(
    /[\\ \t\n]/g,
    (sign) => `\\${sign.charCodeAt(0).toString(8).padStart(3, '0')}`,
  );
  return readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .some((line) => line.split(' ')[1] === escaped);
}
