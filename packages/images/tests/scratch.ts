/**
 * Folders and stores for the tests of this package, removed after each test; and the reasons for skipping.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type ImageStoreOptions, openImageStore } from '../src/open-image-store.js';
import type { ImageStore } from '../src/store.js';

/** Runs after the test, last registered first. */
export function afterThisTest(cleanup: () => Promise<unknown>): void {
  onTestFinished(async () => void (await cleanup()));
}

/** A folder for this test. */
export async function scratchFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'sandlot-images-'));
  afterThisTest(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A store for this test. */
export async function scratchStore(options: Partial<ImageStoreOptions> = {}): Promise<ImageStore> {
  const root = options.root ?? join(await scratchFolder(), 'store');
  const store = await openImageStore({
    root,
    retry: { tries: 3, baseMs: 10, maxMs: 50, maxRetryAfterMs: 2000, silenceMs: 2000 },
    ...options,
  });
  afterThisTest(() => store.close());
  return store;
}

/** True if the test can run; prints why not. */
export function isAvailable(what: string, needsRoot: boolean, ...commands: string[]): boolean {
  const missing = commands.filter((command) => {
    try {
      execFileSync('which', [command], { stdio: 'ignore' });
      return false;
    } catch {
      return true;
    }
  });
  if (needsRoot && process.getuid?.() !== 0) missing.push('root');
  if (missing.length > 0) console.warn(`skipped: ${what} needs ${missing.join(', ')}`);
  return missing.length === 0;
}

/** Bytes as a stream, in chunks. */
export async function* streamOf(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
}

/** What of the `ImageError` that a promise rejects with is for others: its code, its message, and the stack of logs. */
export async function failureOf(
  promise: Promise<unknown>,
): Promise<{ code: string; message: string; stack: string }> {
  try {
    await promise;
  } catch (error) {
    const { code, message, stack } = error as { code: string; message: string; stack: string };
    return { code, message, stack };
  }
  throw new Error('it did not fail');
}
