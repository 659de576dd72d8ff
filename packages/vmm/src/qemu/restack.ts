/**
 * Puts the disk of a running machine above other layers, which hold the same as those below it do: merged ones. Called by
 * `QemuMachine`. QEMU opens them and then, in one command that waits for requests under way, changes what its disk stands
 * on; the guest notices nothing. Both states hold the same, so it does not matter when anything dies: a process that is started
 * anew stands on what the caller's record says, and one that lives is put right by the next call.
 */
import { randomBytes } from 'node:crypto';
import { chmod, link, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { MachineHandle, MachineOrigin } from '../driver.js';
import { backingNode, knownOverlayNode } from './argv.js';
import { type QmpClient, QmpCommandError } from './qmp-client.js';
import { topNode } from './save-snapshot.js';

const worldReadable = 0o004;
const passingName = /^low-[0-9a-f]{12}-\d+\.qcow2$/;
/** Nodes that are, were or were to be a machine's disk, or the highest layer below it. */
const diskNode = /^(disk(-[0-9a-f]{12})?|low-[0-9a-f]{12})$/;

/** Restacks. On a throw the machine runs on as before. */
export async function restack(
  { handle, qmp }: { handle: MachineHandle & { origin: MachineOrigin }; qmp: QmpClient },
  frozen: readonly string[],
): Promise<void> {
  const { folder, origin } = handle;
  const top = await topNode(qmp);
  const node = `low-${randomBytes(6).toString('hex')}`;
  try {
    const names = await nameLayers(frozen, folder, node);
    const layers = backingNode({ backingPath: origin.disk.backingPath, frozen: names });
    await qmp.execute('blockdev-add', { ...layers, 'node-name': node });
    await qmp.execute('blockdev-reopen', { options: [knownOverlayNode(top, node)] });
  } finally {
    await forgetLayerNames(folder);
    // After a failure the new ones, otherwise the old ones: those that nothing stands on.
    await dropUnused(qmp, top).catch(() => undefined);
  }
}

/**
 * Gives the layers names in the machine's own folder: its process has only the groups that it was started with, and
 * the folder of a newer snapshot is shut to it. Only who reaches a folder with such a name can read the file, whatever its mode says.
 */
async function nameLayers(frozen: readonly string[], folder: string, node: string): Promise<string[]> {
  const names: string[] = [];
  for (const [at, path] of frozen.entries()) {
    const { mode } = await stat(path);
    if ((mode & worldReadable) === 0) await chmod(path, (mode & 0o777) | 0o444);
    const name = join(folder, `${node}-${at}.qcow2`);
    await link(path, name);
    names.push(name);
  }
  return names;
}

/** Removes the names by which QEMU has opened layers, also those of an attempt that was cut off. */
export async function forgetLayerNames(folder: string): Promise<void> {
  for (const name of await readdir(folder).catch(() => []))
    if (passingName.test(name)) await rm(join(folder, name), { force: true });
}

/** Closes what was opened by name and is below nothing any more. */
async function dropUnused(qmp: QmpClient, top: string): Promise<void> {
  const nodes = await qmp.execute<{ 'node-name': string }[]>('query-named-block-nodes', { flat: true });
  let left = nodes.map((node) => node['node-name']).filter((name) => diskNode.test(name) && name !== top);
  // One that stands on another goes first; one that is in use stays.
  for (let before = left.length + 1; left.length < before; ) {
    before = left.length;
    const stay: string[] = [];
    for (const name of left) {
      try {
        await qmp.execute('blockdev-del', { 'node-name': name });
      } catch (error) {
        if (!(error instanceof QmpCommandError)) throw error;
        stay.push(name);
      }
    }
    left = stay;
  }
}
