/** When the daemons' code was last built: a daemon that is older must be renewed. Used by `up --if-stale`. */
import { readdirSync, statSync } from 'node:fs';
import path from 'node:path';

/** Packages whose code runs in each daemon. */
const packagesOf = {
  'node agent': ['node-agent', 'protocol', 'images', 'vmm'],
  'control plane': ['control-plane', 'protocol'],
} as const;

/** Newest file of the daemon's code, ms since 1970. */
export function buildTimeOf(role: keyof typeof packagesOf, buildRoot: string): number {
  return Math.max(
    0,
    ...packagesOf[role].map((name) => newestIn(path.join(buildRoot, 'packages', name, 'dist'))),
  );
}

/** True when the daemon was started before its code was built. */
export function isStale(role: keyof typeof packagesOf, buildRoot: string, readyFile: string): boolean {
  try {
    return statSync(readyFile).mtimeMs < buildTimeOf(role, buildRoot);
  } catch {
    return false;
  }
}

function newestIn(folder: string): number {
  let newest = 0;
  let names: string[];
  try {
    names = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  } catch {
    return 0;
  }
  for (const name of names) {
    // Type files and the compiler's notes change without a change of what runs.
    if (name.endsWith('.js')) newest = Math.max(newest, statSync(path.join(folder, name)).mtimeMs);
  }
  return newest;
}
