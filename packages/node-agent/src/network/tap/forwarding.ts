/**
 * Turns on the host's IPv4 forwarding and puts it back when the last instance that needs it goes. Called by
 * `host-setup.ts`. The setting belongs to a network namespace, so the record of it does too.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type CountedSetting, releaseSetting, requireSetting } from './counted-setting.js';
import { readNetworkNamespaceId } from './run-folder.js';

const path = '/proc/sys/net/ipv4/ip_forward';

/** Notes that the instance needs forwarding, and turns it on. Idempotent. */
export async function requireForwarding(runFolder: string, instanceId: string): Promise<void> {
  await requireSetting(await forwarding(runFolder), instanceId);
}

/** Takes the instance's need back. Idempotent. */
export async function releaseForwarding(runFolder: string, instanceId: string): Promise<void> {
  await releaseSetting(await forwarding(runFolder), instanceId);
}

async function forwarding(runFolder: string): Promise<CountedSetting> {
  return {
    folder: join(runFolder, 'forwarding', await readNetworkNamespaceId()),
    read: async () => (await readFile(path, 'utf8')).trim(),
    write: (value) => writeFile(path, value),
    wanted: () => '1',
  };
}
