/** Where things lie in this checkout, and what the whole tests need before they can run. Used by the drivers. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Absolute path of something in the checkout. */
export function inCheckout(path: string): string {
  return fileURLToPath(new URL(`../../${path}`, import.meta.url));
}

/** Kernel, initramfs and modules, made by `make build`. */
export const guestAssets = inCheckout('.cache/guest');

/** Archive of the stand-in for `python:3.11-slim`, made by `make build`. */
export const pythonArchive = inCheckout('.cache/images/python-3.11-slim.tar');

/**
 * Whether servers of tests look for KVM. Where there is none, the look takes each of them some seconds: they
 * do without, except one that tests it, and where SANDLOT_TEST_KVM=auto says that it is worth it.
 */
export const testKvm = process.env['SANDLOT_TEST_KVM'] === 'auto' ? 'auto' : 'never';

/** By how much longer than on a host of its own a test waits: `make test-kvm` runs in an emulated one. */
export const testSlowness = Number(process.env['SANDLOT_TEST_SLOWNESS'] ?? 1);

/** What is missing to run real machines here; undefined when nothing is. Tests fail with it: a skip would hide it. `archive` is the image that they use. */
export function requireWholeHost(archive = pythonArchive): void {
  if (process.getuid?.() !== 0)
    throw new Error('these tests start machines in network namespaces: run them as root');
  for (const path of [
    `${guestAssets}/manifest.json`,
    archive,
    inCheckout('packages/node-agent/dist/main.js'),
  ]) {
    if (!existsSync(path)) throw new Error(`${path} is missing; run "make build"`);
  }
}
