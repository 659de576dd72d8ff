/**
 * A fraction of a CPU, as a cgroup limit on the machine's process: v2 where the unified tree has
 * the cpu controller, else v1 (kernel documentation: admin-guide/cgroup-v2, scheduler/sched-bwc).
 */
import { access, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const periodUs = 100_000;

/** Where limits can be set on this host. */
export type CgroupKind = { version: 2; root: string } | { version: 1; root: string } | undefined;

/** The limits of one instance's machines. */
export class CpuLimits {
  private constructor(
    private readonly kind: CgroupKind,
    private readonly group: string,
  ) {}

  /** @param instanceId so that several instances on a host keep apart */
  static async open(instanceId: string): Promise<CpuLimits> {
    return new CpuLimits(await findCgroups(), `sandlot-${instanceId}`);
  }

  /** For `doctor` and the create answer. */
  get available(): boolean {
    return this.kind !== undefined;
  }

  /** @param cpus e.g. 0.5 @returns a warning when no limit could be set */
  async apply(sandboxId: string, pid: number, cpus: number): Promise<string | undefined> {
    if (!this.kind) return 'No limit on CPU time: this host has no usable cgroup for it.';
    const folder = join(this.kind.root, this.group, sandboxId);
    const quotaUs = Math.max(1_000, Math.round(cpus * periodUs));
    try {
      await mkdir(folder, { recursive: true });
      if (this.kind.version === 2) {
        await writeFile(join(this.kind.root, this.group, 'cgroup.subtree_control'), '+cpu');
        await writeFile(join(folder, 'cpu.max'), `${quotaUs} ${periodUs}`);
      } else {
        await writeFile(join(folder, 'cpu.cfs_period_us'), String(periodUs));
        await writeFile(join(folder, 'cpu.cfs_quota_us'), String(quotaUs));
      }
      await writeFile(join(folder, 'cgroup.procs'), String(pid));
      return undefined;
    } catch (error) {
      return `No limit on CPU time: ${(error as Error).message}`;
    }
  }

  /** The process must be gone. */
  async remove(sandboxId: string): Promise<void> {
    if (!this.kind) return;
    await rmdir(join(this.kind.root, this.group, sandboxId)).catch(() => {});
  }

  /** Removes the groups of sandboxes that are not kept, and the instance's own when it is empty. */
  async reap(isKept: (sandboxId: string) => boolean): Promise<void> {
    if (!this.kind) return;
    const root = join(this.kind.root, this.group);
    for (const entry of await readdir(root, { withFileTypes: true }).catch(() => [])) {
      if (entry.isDirectory() && !isKept(entry.name)) await rmdir(join(root, entry.name)).catch(() => {});
    }
    // Refused while there is a group in it.
    await rmdir(root).catch(() => {});
  }
}

async function findCgroups(): Promise<CgroupKind> {
  const controllers = await readFile('/sys/fs/cgroup/cgroup.controllers', 'utf8').catch(() => '');
  if (controllers.split(/\s+/).includes('cpu') && (await isWritable('/sys/fs/cgroup'))) {
    return { version: 2, root: '/sys/fs/cgroup' };
  }
  for (const name of ['cpu', 'cpu,cpuacct']) {
    const root = join('/sys/fs/cgroup', name);
    if (await isWritable(join(root, 'cpu.cfs_quota_us'), root)) return { version: 1, root };
  }
  return undefined;
}

async function isWritable(...paths: string[]): Promise<boolean> {
  try {
    for (const path of paths) await access(path, path.includes('cpu.cfs') ? 4 : 2);
    return true;
  } catch {
    return false;
  }
}
