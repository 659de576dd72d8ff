/**
 * What a node keeps of each sandbox on disk, so that it can be adopted after our restart. Only
 * `Sandbox` writes it. A record is whole or absent: it is written beside and renamed.
 */
import { lstat, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import type { MachineHandle } from '@sandlot/vmm';
import type { NetworkHandle } from '../network/network.js';

/** Everything that must survive us. */
export interface SandboxRecord {
  /** Raised when the form changes; records of another form are refused with a clear message. */
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

  async write(record: SandboxRecord): Promise<void> {
    const folder = this.folderOf(record.spec.sandboxId);
    await mkdir(folder, { recursive: true, mode: 0o711 });
    const temporary = join(folder, 'record.json.new');
    await writeFile(temporary, JSON.stringify(record), { mode: 0o600 });
    await rename(temporary, join(folder, 'record.json'));
  }

  /** All records, and the names of folders without one (a start that never got that far). */
  async readAll(): Promise<{ records: SandboxRecord[]; strays: string[] }> {
    await mkdir(this.root, { recursive: true, mode: 0o711 });
    const records: SandboxRecord[] = [];
    const strays: string[] = [];
    for (const name of await readdir(this.root)) {
      try {
        const record = JSON.parse(
          await readFile(join(this.root, name, 'record.json'), 'utf8'),
        ) as SandboxRecord;
        if (record.form === 1) records.push(record);
        else strays.push(name);
      } catch {
        strays.push(name);
      }
    }
    return { records, strays };
  }

  /** Bytes that the machines' own files (their disks above the image) take on this host's disk now. */
  async usedBytes(): Promise<number> {
    let bytes = 0;
    for (const name of await readdir(this.root).catch(() => [])) {
      const folder = this.machineFolderOf(name);
      for (const file of await readdir(folder).catch(() => [])) {
        // One that goes meanwhile takes nothing.
        const found = await lstat(join(folder, file)).catch(() => undefined);
        // `blocks` counts 512 bytes each (stat(2)), whatever the file system's own size of them.
        if (found?.isFile()) bytes += found.blocks * 512;
      }
    }
    return bytes;
  }

  async remove(sandboxId: string): Promise<void> {
    await rm(this.folderOf(sandboxId), { recursive: true, force: true });
  }
}
