/** Root file systems of Debian packages, built once and kept in `.cache/images`. Used by tests/linux. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { inCheckout } from './checkout.js';

/** Longest build: a download and an unpacking of half a gigabyte on a busy host. */
const buildTimeoutMs = 900_000;

/** Path of the tar of `packages` and what they depend on; builds it if it is not there. */
export async function debianImage(name: string, packages: readonly string[]): Promise<string> {
  const build = promisify(execFile)(inCheckout('tools/images/build-debian.sh'), [name, ...packages], {
    timeout: buildTimeoutMs,
  });
  build.child.stderr?.pipe(process.stderr);
  build.child.stdin?.end();
  return (await build).stdout.trim();
}
