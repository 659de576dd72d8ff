/** Root file systems of Debian packages, built once and kept in `.cache/images`. Used by tests/linux. */
import { execFileSync } from 'node:child_process';
import { inCheckout } from './checkout.js';

/** Longest build: a download and an unpacking of half a gigabyte on a busy host. */
const buildTimeoutMs = 900_000;

/** Path of the tar of `packages` and what they depend on; builds it if it is not there. */
export function debianImage(name: string, packages: readonly string[]): string {
  return execFileSync(inCheckout('tools/images/build-debian.sh'), [name, ...packages], {
    encoding: 'utf8',
    timeout: buildTimeoutMs,
    stdio: ['ignore', 'pipe', 'inherit'],
  }).trim();
}
