/** What this node offers and runs: the answer of `GET /v1/node`. */
import { statfs } from 'node:fs/promises';
import { availableParallelism, totalmem } from 'node:os';
import type { NodeInfo } from '@sandlot/protocol';
import type { DriverInfo } from '@sandlot/vmm';
import type { Networks } from './network/network.js';
import type { NodeAgentOptions } from './options.js';
import type { CpuLimits } from './sandbox/cpu-limits.js';
import type { RecordFolder } from './sandbox/record.js';
import type { Sandboxes } from './sandbox/sandboxes.js';
import type { SnapshotStore } from './snapshots/snapshot-store.js';
import { version } from './version.js';

/** Memory that is never offered: the host, its page cache and our daemons. */
const keptMemoryMiB = 2048;

interface Parts {
  options: NodeAgentOptions;
  info: DriverInfo;
  networks: Networks;
  cpuLimits: CpuLimits;
  sandboxes: Sandboxes;
  records: RecordFolder;
  snapshots: SnapshotStore;
}

/**
 * What files take of the disk that reservations stand for: those that machines write to, and the memory of sandboxes that are paused. All
 * other files, of checkpoints and layers, are nobody's reservation, and what is above a layer may be written once more in full.
 */
export async function reservedFileBytes({
  sandboxes,
  records,
  snapshots,
}: Pick<Parts, 'sandboxes' | 'records' | 'snapshots'>): Promise<number> {
  // A disk that has just become a snapshot's has a name with its machine too.
  const seen = new Set<string>();
  let bytes = await records.usedBytes(seen);
  for (const { pausedMemory } of sandboxes.list())
    if (pausedMemory !== undefined) bytes += await snapshots.memoryBytes(pausedMemory, seen);
  return bytes;
}

/**
 * Reads the disk space now; all else is known. Disk is offered of what is free, as often as over-commit says; and, once, of what reserved
 * files take, or it would be taken off twice.
 */
export async function describeNode({
  options,
  info,
  networks,
  cpuLimits,
  sandboxes,
  records,
  snapshots,
}: Parts): Promise<NodeInfo> {
  const disk = await statfs(options.dataFolder);
  const freeBytes = disk.bavail * disk.bsize;
  const takenBytes = await reservedFileBytes({ sandboxes, records, snapshots });
  const memoryMiB = Math.max(0, totalmem() / 2 ** 20 - keptMemoryMiB);
  const warnings = networks.warnings();
  if (info.accelerator === 'tcg') {
    warnings.push('Machines are emulated in software: they compute about 18 times slower than with KVM.');
  }
  if (!cpuLimits.available)
    warnings.push('A fraction of a CPU cannot be enforced: no usable cgroup on this host.');
  return {
    nodeId: `node-${options.instanceId}`,
    version,
    pid: process.pid,
    accelerator: info.accelerator,
    acceleratorReason: info.reason,
    networkMode: networks.mode,
    dataFolder: options.dataFolder,
    offer: {
      vcpus: availableParallelism() * options.cpuOvercommit,
      memoryMiB: Math.floor(memoryMiB * options.memoryOvercommit),
      diskGiB: Math.floor((freeBytes * options.diskOvercommit + takenBytes) / 2 ** 30),
    },
    diskTotalGiB: Math.floor(((disk.blocks * disk.bsize) / 2 ** 30) * options.diskOvercommit),
    warnings,
    processes: networks.processes(),
    machines: sandboxes
      .list()
      .map((sandbox) => sandbox.report)
      .flatMap(({ sandboxId, pid }) => (pid === undefined ? [] : [{ id: sandboxId, pid }])),
  };
}
