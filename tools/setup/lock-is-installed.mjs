// Exits 0 when node_modules holds exactly what package-lock.json asks for on this platform. Called by
// modules.sh: `npm ci` empties node_modules first, so it runs only when it must.
import { readFileSync } from 'node:fs';

/** Packages of a lock file by path. */
function packagesOf(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8')).packages ?? {};
  } catch {
    return undefined;
  }
}

const wanted = packagesOf('package-lock.json');
const installed = packagesOf('node_modules/.package-lock.json');
if (!wanted || !installed) process.exit(1);

for (const [path, entry] of Object.entries(wanted)) {
  if (!path.includes('node_modules/')) continue;
  const found = installed[path];
  // Optional packages of other platforms are in the lock and never installed.
  if (!found && entry.optional) continue;
  if (!found || found.version !== entry.version || Boolean(found.link) !== Boolean(entry.link))
    process.exit(1);
}
