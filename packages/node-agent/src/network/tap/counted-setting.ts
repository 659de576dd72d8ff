/**
 * Something of the host that all its instances need set, and that the last one puts back. Used for
 * forwarding and for the tun device. A crash between record and change leaves a record of what is already so.
 */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { withLock } from './run-folder.js';

/** One setting of the host. */
export interface CountedSetting {
  /** Its record, shared by all instances. */
  folder: string;
  read(): Promise<string>;
  write(value: string): Promise<void>;
  /** The value that serves us in place of the one found; the same if that one does. */
  wanted(found: string): string;
}

/** Notes that the instance needs the setting, and makes it so. Idempotent. */
export async function requireSetting(setting: CountedSetting, instanceId: string): Promise<void> {
  await withLock(`${setting.folder}.lock`, async () => {
    await mkdir(join(setting.folder, 'users'), { recursive: true });
    await writeFile(join(setting.folder, 'users', instanceId), '');
    const found = await setting.read();
    const wanted = setting.wanted(found);
    if (wanted === found) return;
    await writeFile(join(setting.folder, 'original'), found);
    await setting.write(wanted);
  });
}

/** Takes the instance's need back; the last one restores what was there before the first, if we changed it. Idempotent. */
export async function releaseSetting(setting: CountedSetting, instanceId: string): Promise<void> {
  await withLock(`${setting.folder}.lock`, async () => {
    await rm(join(setting.folder, 'users', instanceId), { force: true });
    const users = await readdir(join(setting.folder, 'users')).catch(orNone<string[]>([]));
    if (users.length > 0) return;
    const original = await readFile(join(setting.folder, 'original'), 'utf8').catch(
      orNone<undefined>(undefined),
    );
    if (original !== undefined) await setting.write(original);
    await rm(setting.folder, { recursive: true, force: true });
  });
}

function orNone<T>(none: T): (cause: NodeJS.ErrnoException) => T {
  return (cause) => {
    if (cause.code === 'ENOENT') return none;
    throw cause;
  };
}
