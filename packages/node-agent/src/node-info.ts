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

/** Reads the disk space now; all else is known. Disk is offered of what is free and what our sandboxes take of it. */
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
  // Reservations are taken off the offer, so what stands behind them must not be taken off twice.
  // A disk that has just become a snapshot's has a name with its machine too.
  const seen = new Set<string>();
  const usedBytes = (await records.usedBytes(seen)) + (await snapshots.usedBytes(seen));
  const diskGiB = (disk.bavail * disk.bsize + usedBytes) / 2 ** 30;
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
      diskGiB: Math.floor(diskGiB * options.diskOvercommit),
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
