/**
 * Turns on the host's IPv4 forwarding and puts it back when the last instance that needs it goes. Called by
 * `host-setup.ts`. The setting belongs to a network namespace, so the record of it does too.
 */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readNetworkNamespaceId, withLock } from './run-folder.js';

const setting = '/proc/sys/net/ipv4/ip_forward';

/** Notes that the instance needs forwarding, and turns it on. Idempotent. */
export async function requireForwarding(runFolder: string, instanceId: string): Promise<void> {
  const folder = await folderOf(runFolder);
  await withLock(join(runFolder, 'forwarding.lock'), async () => {
    await mkdir(join(folder, 'users'), { recursive: true });
    await writeFile(join(folder, 'users', instanceId), '');
    const value = (await readFile(setting, 'utf8')).trim();
    if (value === '1') return;
    // Before the change: a crash in between leaves a record of what is already so.
    await writeFile(join(folder, 'original'), value);
    await writeFile(setting, '1');
  });
}

/** Takes the instance's need back; the last one restores what was there before the first, if we changed it. Idempotent. */
export async function releaseForwarding(runFolder: string, instanceId: string): Promise<void> {
  const folder = await folderOf(runFolder);
  await withLock(join(runFolder, 'forwarding.lock'), async () => {
    await rm(join(folder, 'users', instanceId), { force: true });
    if ((await readdirOrNone(join(folder, 'users'))).length > 0) return;
    const original = await readOrNone(join(folder, 'original'));
    if (original !== undefined) await writeFile(setting, original);
    await rm(folder, { recursive: true, force: true });
  });
}

async function folderOf(runFolder: string): Promise<string> {
  return join(runFolder, 'forwarding', await readNetworkNamespaceId());
}

async function readOrNone(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw cause;
  }
}

async function readdirOrNone(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw cause;
  }
}
