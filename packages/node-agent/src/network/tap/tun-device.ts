/**
 * Lets every user open /dev/net/tun, as udev's rules do on a plain host: machines run as users of their own, and a
 * tap is protected by its owner. Hosts without udev have it 0600. Called by `host-setup.ts`.
 */
import { chmod, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type CountedSetting, releaseSetting, requireSetting } from './counted-setting.js';

const device = '/dev/net/tun';

/** Notes that the instance needs the device, and opens it. Idempotent. */
export function requireTunDevice(runFolder: string, instanceId: string): Promise<void> {
  return requireSetting(tunMode(runFolder), instanceId);
}

/** Takes the instance's need back. Idempotent. */
export function releaseTunDevice(runFolder: string, instanceId: string): Promise<void> {
  return releaseSetting(tunMode(runFolder), instanceId);
}

function tunMode(runFolder: string): CountedSetting {
  return {
    folder: join(runFolder, 'tun-device'),
    read: async () => ((await stat(device)).mode & 0o777).toString(8),
    write: (mode) => chmod(device, Number.parseInt(mode, 8)),
    wanted: (mode) => (Number.parseInt(mode, 8) | 0o666).toString(8),
  };
}
