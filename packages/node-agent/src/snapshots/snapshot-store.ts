/**
 * The snapshots of a node: a folder each, named by a random id, kept as long as anybody needs it. A paused sandbox needs
 * its own whole; a machine needs the one that its memory began as whole, and of those whose disks lie below its own the
 * disks; a checkpoint needs those that it is made of. Opened by `agent.ts`; sandboxes and checkpoints say what they need, and what
 * nobody needs goes: of a snapshot that is only a layer of disks its memory goes.
 *
 * If we die: what the records name is needed again; the rest is removed by `reap` after the records are read.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { SnapshotUse } from '@sandlot/protocol';
import { readSnapshot, type Snapshot, snapshotPaths } from '@sandlot/vmm';
import { checksumsFile } from './checksums.js';
import { bytesOfFile } from './disk-use.js';

const idPattern = /^[0-9a-f]{16}$/;
/** Groups of snapshots: far above those of any host, below the half of the number space that some kernels cannot use. */
const firstGid = 0x4000_0000;
const gidDigits = 7;

/** Which snapshots somebody needs, by their ids. */
export interface SnapshotNeeds {
  /** With memory and all. */
  whole: readonly string[];
  /** As layers of a disk. */
  disks: readonly string[];
}

/** All snapshots of a node. */
export class SnapshotStore {
  /** What each sandbox or checkpoint needs, by its id or name. */
  readonly #needs = new Map<string, { whole: ReadonlySet<string>; disks: ReadonlySet<string> }>();
  /** How many need each: whole, and at least its disk. */
  readonly #readers = new Map<string, { whole: number; disks: number }>();

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

  /** File of its disk, as a layer of other disks. */
  diskOf(id: string): string {
    return snapshotPaths(this.folderOf(id)).disk;
  }

  /** Group that may read it; undefined where all machines have one identity. */
  groupOf(id: string): number | undefined {
    return this.asRoot ? firstGid + Number.parseInt(id.slice(0, gidDigits), 16) : undefined;
  }

  /** Its files as the VMM driver wants them; undefined when it is not there or not whole. */
  read(id: string): Promise<Snapshot | undefined> {
    return readSnapshot(this.folderOf(id));
  }

  /**
   * From now on this sandbox or checkpoint needs these and no others; a plain list is needed whole. What it no longer needs goes, unless
   * another does.
   */
  async need(holder: string, needs: readonly string[] | SnapshotNeeds): Promise<void> {
    const { whole, disks } = 'whole' in needs ? needs : { whole: needs, disks: [] };
    const before = this.#needs.get(holder);
    const after = { whole: new Set(whole), disks: new Set(disks) };
    if (whole.length + disks.length > 0) this.#needs.set(holder, after);
    else this.#needs.delete(holder);
    this.#count(after, 1);
    if (before) this.#count(before, -1);
    for (const id of new Set([...(before?.whole ?? []), ...(before?.disks ?? [])]))
      await this.#dropUnneeded(id);
  }

  /** Whether anybody needs it, be it only as a layer. */
  isNeeded(id: string): boolean {
    return this.#readersOf(id, 'disks') > 0;
  }

  /** Removes what nobody needs. Called after all sandboxes have said what they do. */
  async reap(): Promise<void> {
    for (const name of await readdir(this.root).catch(() => [])) {
      if (idPattern.test(name)) await this.#dropUnneeded(name);
      else await rm(join(this.root, name), { recursive: true, force: true });
    }
  }

  /**
   * Bytes that one takes on the disk now, without its disk.
   * @param seen files that are counted already, by another name
   */
  async memoryBytes(id: string, seen = new Set<string>()): Promise<number> {
    let bytes = 0;
    for (const file of await this.#filesOf(id)) if (!isOfDisk(file)) bytes += await bytesOfFile(file, seen);
    return bytes;
  }

  /** Bytes of a snapshot's disk alone. */
  diskBytes(id: string): Promise<number> {
    return bytesOfFile(this.diskOf(id));
  }

  /**
   * What one's snapshots take of the disk: files that go with it, and those that others need too. Blocks that files share by
   * reflink count in each.
   */
  async bytesNeededBy(holder: string): Promise<{ ownBytes: number; sharedBytes: number }> {
    const bytes = { ownBytes: 0, sharedBytes: 0 };
    const { whole, disks } = this.#needs.get(holder) ?? {
      whole: new Set<string>(),
      disks: new Set<string>(),
    };
    for (const id of new Set([...whole, ...disks])) {
      for (const file of await this.#filesOf(id)) {
        const part = isOfDisk(file) ? 'disks' : 'whole';
        if (part === 'whole' && !whole.has(id)) continue;
        const others = this.#readersOf(id, part) > 1;
        bytes[others ? 'sharedBytes' : 'ownBytes'] += await bytesOfFile(file);
      }
    }
    return bytes;
  }

  /** The same for all who need any. */
  async use(): Promise<SnapshotUse[]> {
    const all: SnapshotUse[] = [];
    for (const [holder, { disks }] of [...this.#needs]) {
      all.push({ holder, layers: disks.size, ...(await this.bytesNeededBy(holder)) });
    }
    return all;
  }

  /** How many need it whole, or at least its disk. */
  #readersOf(id: string, part: keyof SnapshotNeeds): number {
    return this.#readers.get(id)?.[part] ?? 0;
  }

  #count({ whole, disks }: { whole: ReadonlySet<string>; disks: ReadonlySet<string> }, by: number): void {
    for (const id of new Set([...whole, ...disks])) {
      const readers = this.#readers.get(id) ?? { whole: 0, disks: 0 };
      readers.disks += by;
      if (whole.has(id)) readers.whole += by;
      if (readers.disks > 0) this.#readers.set(id, readers);
      else this.#readers.delete(id);
    }
  }

  /** Its files, without module disks: they are the template's, by another name. */
  async #filesOf(id: string): Promise<string[]> {
    const folder = this.folderOf(id);
    const names = await readdir(folder).catch(() => []);
    return names.filter((name) => name !== 'modules.ext4').map((name) => join(folder, name));
  }

  async #dropUnneeded(id: string): Promise<void> {
    const folder = this.folderOf(id);
    if (!this.isNeeded(id)) await rm(folder, { recursive: true, force: true });
    else if (this.#readersOf(id, 'whole') === 0) {
      const { description, disk } = snapshotPaths(folder);
      // Nobody may take what is left for whole.
      await rm(description, { force: true });
      const names = await readdir(folder).catch(() => []);
      // Also those that are being made: a layer of a checkpoint becomes durable meanwhile.
      for (const name of names)
        if (name !== basename(disk) && !name.startsWith(checksumsFile))
          await rm(join(folder, name), { recursive: true, force: true });
    }
  }
}

/** It stays where a snapshot is only a layer. */
function isOfDisk(file: string): boolean {
  return basename(file) === basename(snapshotPaths('').disk) || basename(file) === checksumsFile;
}
