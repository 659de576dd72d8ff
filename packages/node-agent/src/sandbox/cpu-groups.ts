/**
 * A control group for the machine of each sandbox: its share of the processors by its count of vCPUs, and a limit where a fraction
 * of one is asked for. v2 where the unified tree has the cpu controller, else v1 (kernel documentation: admin-guide/cgroup-v2,
 * scheduler/sched-design-CFS, scheduler/sched-bwc). All groups lie in one of the instance's, so that machines together compete with our
 * daemons as one: a host full of busy guests still answers.
 */
import { access, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';

const periodUs = 100_000;
/** Weights of a process at nice 0, as a group's default has it: of v1 and of v2. */
const sharesOfOne = 1024;
const weightOfOne = 100;
/** Largest values that the kernel takes. */
const maxShares = 262_144;
const maxWeight = 10_000;

/** Where groups can be made on this host. */
export type CgroupKind = { version: 2; root: string } | { version: 1; root: string } | undefined;

/** What a machine may use. */
export interface CpuShare {
  vcpus: number;
  /** E.g. 0.5; 0: as much as its vCPUs can. */
  cpuLimit: number;
}

/** The groups of one instance's machines. */
export class CpuGroups {
  readonly #folder: string;
  #ready: Promise<void> | undefined;

  private constructor(
    private readonly kind: CgroupKind,
    instanceId: string,
  ) {
    this.#folder = join(kind?.root ?? '', `sandlot-${instanceId}`);
  }

  /** @param instanceId so that several instances on a host keep apart */
  static async open(instanceId: string): Promise<CpuGroups> {
    return new CpuGroups(await findCgroups(), instanceId);
  }

  /** For `doctor` and the create answer. */
  get available(): boolean {
    return this.kind !== undefined;
  }

  /** Puts a process with all its threads into the sandbox's group. @returns a warning when its limit cannot be set */
  async place(sandboxId: string, pid: number, { vcpus, cpuLimit }: CpuShare): Promise<string | undefined> {
    const isLimited = cpuLimit > 0;
    if (!this.kind)
      return isLimited ? 'No limit on CPU time: this host has no usable cgroup for it.' : undefined;
    const folder = join(this.#folder, sandboxId);
    const quotaUs = Math.max(1_000, Math.round(cpuLimit * periodUs));
    try {
      this.#ready ??= this.#prepare();
      await this.#ready;
      await mkdir(folder, { recursive: true });
      if (this.kind.version === 2) {
        await writeFile(join(folder, 'cpu.weight'), String(Math.min(maxWeight, weightOfOne * vcpus)));
        if (isLimited) await writeFile(join(folder, 'cpu.max'), `${quotaUs} ${periodUs}`);
      } else {
        await writeFile(join(folder, 'cpu.shares'), String(sharesOfOne * vcpus));
        if (isLimited) {
          await writeFile(join(folder, 'cpu.cfs_period_us'), String(periodUs));
          await writeFile(join(folder, 'cpu.cfs_quota_us'), String(quotaUs));
        }
      }
      await writeFile(join(folder, 'cgroup.procs'), String(pid));
      return undefined;
    } catch (error) {
      this.#ready = undefined;
      return isLimited ? `No limit on CPU time: ${(error as Error).message}` : undefined;
    }
  }

  /** The process must be gone. */
  async remove(sandboxId: string): Promise<void> {
    if (!this.kind) return;
    await rmdir(join(this.#folder, sandboxId)).catch(() => {});
  }

  /** Removes the groups of sandboxes that are not kept, and the instance's own when it is empty. */
  async reap(isKept: (sandboxId: string) => boolean): Promise<void> {
    if (!this.kind) return;
    for (const entry of await readdir(this.#folder, { withFileTypes: true }).catch(() => [])) {
      if (entry.isDirectory() && !isKept(entry.name))
        await rmdir(join(this.#folder, entry.name)).catch(() => {});
    }
    // Refused while there is a group in it.
    await rmdir(this.#folder).then(
      () => {
        this.#ready = undefined;
      },
      () => {},
    );
  }

  /**
   * The instance's group. In v1 our daemons are no group but processes beside it: the machines weigh as much as one of them on each
   * processor. In v2 they are in a group with the weight of the default, and so is this.
   */
  async #prepare(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    if (this.kind?.version === 2) await writeFile(join(this.#folder, 'cgroup.subtree_control'), '+cpu');
    else {
      const shares = Math.min(maxShares, sharesOfOne * availableParallelism());
      await writeFile(join(this.#folder, 'cpu.shares'), String(shares));
    }
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
