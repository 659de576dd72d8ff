/**
 * The snapshots of a node: a folder each, named by a random id, kept as long as anybody needs it. A paused sandbox needs
 * its own; a machine needs the one that its memory began as, and those whose disks lie below its own; a checkpoint needs those that it is made of. Opened by
 * `agent.ts`; sandboxes say what they need, and what nobody needs goes.
 *
 * If we die: what the records name is needed again; the rest is removed by `reap` after the records are read.
 */
import { randomBytes } from 'node:crypto';
import { lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readSnapshot, type Snapshot } from '@sandlot/vmm';

const idPattern = /^[0-9a-f]{16}$/;
/** Groups of snapshots: far above those of any host, below the half of the number space that some kernels cannot use. */
const firstGid = 0x4000_0000;
const gidDigits = 7;

/** All snapshots of a node. */
export class SnapshotStore {
  /** What each sandbox or checkpoint needs, by its id or name. */
  readonly #needs = new Map<string, ReadonlySet<string>>();

  /** @param asRoot machines have identities of their own, and read a snapshot through its group */
  constructor(
    readonly root: string,
    private readonly asRoot: boolean,
  ) {}

  /** Makes the folder of them all. */
  async open(): Promise<void> {
    await mkdir(this.root, { recursive: true, mode: 0o711 });
  }

  /** An id for a new one. Say who needs it before making its folder. */
  newId(): string {
    return randomBytes(8).toString('hex');
  }

  /** Makes the empty folder of a new one. */
  async makeFolder(id: string): Promise<string> {
    const folder = this.folderOf(id);
    await mkdir(folder, { mode: 0o700 });
    return folder;
  }

  folderOf(id: string): string {
    return join(this.root, id);
  }

  /** Group that may read it; undefined where all machines have one identity. */
  groupOf(id: string): number | undefined {
    return this.asRoot ? firstGid + Number.parseInt(id.slice(0, gidDigits), 16) : undefined;
  }

  /** Its files as the VMM driver wants them; undefined when it is not there or not whole. */
  read(id: string): Promise<Snapshot | undefined> {
    return readSnapshot(this.folderOf(id));
  }

  /** From now on this sandbox or checkpoint needs these and no others. What it no longer needs goes, unless another does. */
  async need(holder: string, ids: readonly string[]): Promise<void> {
    const before = this.#needs.get(holder) ?? new Set();
    if (ids.length > 0) this.#needs.set(holder, new Set(ids));
    else this.#needs.delete(holder);
    for (const id of before) if (!this.#isNeeded(id)) await this.#remove(id);
  }

  /** Removes what nobody needs. Called after all sandboxes have said what they do. */
  async reap(): Promise<void> {
    for (const name of await readdir(this.root).catch(() => [])) {
      if (!idPattern.test(name) || !this.#isNeeded(name)) await this.#remove(name);
    }
  }

  /** Bytes that they take on the disk now. */
  async usedBytes(): Promise<number> {
    let bytes = 0;
    for (const name of await readdir(this.root).catch(() => [])) bytes += await this.#bytesOf(name);
    return bytes;
  }

  /** The same of what one needs: alone, so that they would go with it, and together with others. */
  async bytesNeededBy(holder: string): Promise<{ ownBytes: number; sharedBytes: number }> {
    const sums = { ownBytes: 0, sharedBytes: 0 };
    for (const id of this.#needs.get(holder) ?? []) {
      let holders = 0;
      for (const ids of this.#needs.values()) if (ids.has(id)) holders++;
      sums[holders > 1 ? 'sharedBytes' : 'ownBytes'] += await this.#bytesOf(id);
    }
    return sums;
  }

  async #bytesOf(id: string): Promise<number> {
    let bytes = 0;
    for (const file of await readdir(this.folderOf(id)).catch(() => [])) {
      const found = await lstat(join(this.folderOf(id), file)).catch(() => undefined);
      // Module disks are the template's, by another name.
      if (found?.isFile() && file !== 'modules.ext4') bytes += found.blocks * 512;
    }
    return bytes;
  }

  #isNeeded(id: string): boolean {
    for (const ids of this.#needs.values()) if (ids.has(id)) return true;
    return false;
  }

  async #remove(name: string): Promise<void> {
    await rm(join(this.root, name), { recursive: true, force: true });
  }
}
