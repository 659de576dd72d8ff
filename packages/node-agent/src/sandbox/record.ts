/**
 * What a node keeps of each sandbox on disk, so that it can be adopted after our restart. Only
 * `Sandbox` writes it. A record is whole or absent: it is written beside and renamed.
 */
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { GuestInit, NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import { type MachineHandle, syncToDisk } from '@sandlot/vmm';
import type { NetworkHandle } from '../network/network.js';
import { bytesOfFile } from '../snapshots/disk-use.js';
import type { SnapshotNeeds } from '../snapshots/snapshot-store.js';

/** Everything that must survive us. */
export interface SandboxRecord {
  /** Raised when the form changes. Another form is a newer version's: see {@link RecordFormError}. */
  form: 1;
  spec: NodeSandboxSpec;
  report: SandboxReport;
  /** Set once the machine process exists. */
  machine?: MachineHandle;
  /** Set before the machine is started in it. */
  network?: NetworkHandle;
  /** `/bin/bash`, `/bin/sh` or "" as the guest found at init. */
  shell?: string;
  /** The start command runs and its output is to be followed. */
  startCommandRuns?: boolean;
  /** Sessions that were started in another view than the default one. */
  sessionsElsewhere?: string[];
  /** What its machine is made of; set with the first one. */
  boot?: BootFacts;
  /** Its guest has asked for a reboot: whatever machine is named here is the old one, or not ready. */
  rebooting?: boolean;
  /** The network that it was paused in is gone; its next machine has to be told. */
  networkIsNew?: true;
  /** Its machine's memory is that of another sandbox, until its guest has confirmed who it is. */
  isAnother?: true;
  /** Snapshot that its machine's memory began as, or of a paused one is to begin as. */
  memory?: string;
  /** Snapshots whose disks lie below its own, the lowest first. */
  layers?: string[];
  /** Snapshot that is being made of it. */
  saving?: string;
  /** It begins as a copy of another sandbox: its machine goes on from `memory`. */
  copy?: true;
  /** It begins with the disk of another sandbox, in `layers`: its machine boots with it. */
  copyOfDisk?: true;
  /** It is being put back there: whatever machine is named here is the old one, or of no use. */
  rollback?: RestorePoint;
}

/** What a sandbox has beside what is its own: from where a copy, or one that is put back, goes on. */
export interface RestorePoint {
  /** Of the sandbox that was saved. */
  sandboxId: string;
  /** Snapshot whose memory it goes on from; absent: its machine boots. */
  memory?: string;
  /** Snapshots that are its disk, the lowest first. */
  layers: string[];
  boot: BootFacts;
  imageDigest?: string;
  /** These are of its processes, and mean nothing without memory. */
  shell?: string;
  startCommandRuns?: boolean;
  sessionsElsewhere?: string[];
  exitCode?: number;
}

/** All snapshots without which a sandbox could not go on. */
export function neededSnapshots({ memory, layers = [], saving, rollback }: SandboxRecord): SnapshotNeeds {
  const whole = [memory, saving, rollback?.memory].filter((id) => id !== undefined);
  return { whole, disks: [...layers, ...(rollback?.layers ?? [])] };
}

/** What every machine of the sandbox is made of, the first and those after a reboot. */
export interface BootFacts {
  /** The image's root file system, held. */
  rootfsPath: string;
  diskBytes: number;
  /** The file system ends before its device. */
  mustGrow: boolean;
  image: GuestInit['image'];
}

/**
 * A record was written by a newer version. We would not know what it holds, and would end its machine as nobody's: so
 * the node agent does not start, and touches nothing.
 */
export class RecordFormError extends Error {
  override name = 'RecordFormError';
}

/** All records, and the names of folders without one (a start that never got that far). */
export interface FoundRecords {
  records: SandboxRecord[];
  strays: string[];
}

/** The folder of all sandboxes of a node: one folder each, with `record.json`, `start.log` and `m/`, the machine's own. */
export class RecordFolder {
  constructor(readonly root: string) {}

  folderOf(sandboxId: string): string {
    return join(this.root, sandboxId);
  }

  machineFolderOf(sandboxId: string): string {
    return join(this.root, sandboxId, 'm');
  }

  logPathOf(sandboxId: string): string {
    return join(this.root, sandboxId, 'start.log');
  }

  /** @param forGood it reaches the host's disk before this resolves: what it says must outlive a loss of power */
  async write(record: SandboxRecord, forGood = false): Promise<void> {
    const folder = this.folderOf(record.spec.sandboxId);
    const temporary = join(folder, 'record.json.new');
    const text = JSON.stringify(record);
    try {
      await writeFile(temporary, text, { mode: 0o600 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      // Its first record. Tried last: a start writes several, and making the folder costs more than all else.
      await mkdir(folder, { recursive: true, mode: 0o711 });
      await writeFile(temporary, text, { mode: 0o600 });
    }
    if (forGood) await syncToDisk(temporary);
    await rename(temporary, join(folder, 'record.json'));
    if (forGood) await syncToDisk(folder);
  }

  /**
   * Reads them.
   * @throws RecordFormError
   */
  async readAll(): Promise<FoundRecords> {
    await mkdir(this.root, { recursive: true, mode: 0o711 });
    const records: SandboxRecord[] = [];
    const strays: string[] = [];
    for (const name of await readdir(this.root)) {
      const record = await readRecord(join(this.root, name, 'record.json'));
      if (record === undefined) strays.push(name);
      else records.push(record);
    }
    return { records, strays };
  }

  /**
   * Bytes that the machines' own files (their disks above the image) take on this host's disk now.
   * @param seen files that are counted already, by another name
   */
  async usedBytes(seen = new Set<string>()): Promise<number> {
    let bytes = 0;
    for (const name of await readdir(this.root).catch(() => [])) {
      const folder = this.machineFolderOf(name);
      for (const file of await readdir(folder).catch(() => []))
        bytes += await bytesOfFile(join(folder, file), seen);
    }
    return bytes;
  }

  async remove(sandboxId: string): Promise<void> {
    await rm(this.folderOf(sandboxId), { recursive: true, force: true });
  }
}

/** Undefined where there is none, or only the rest of one that a crash of the host has cut off. */
async function readRecord(file: string): Promise<SandboxRecord | undefined> {
  let record: Partial<SandboxRecord> | null;
  try {
    record = JSON.parse(await readFile(file, 'utf8')) as Partial<SandboxRecord> | null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (error instanceof SyntaxError || code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw error;
  }
  if (typeof record?.form !== 'number') return undefined;
  if (record.form !== 1)
    throw new RecordFormError(
      `${file} has form ${record.form}, which this version of Sandlot cannot read: a newer one wrote it. Nothing was changed. Start the newer version, or end that sandbox with it first.`,
    );
  return record as SandboxRecord;
}
