/**
 * Finds machine processes by their command line: one that was started just before we died is in no
 * record, but its arguments name its folder below ours. Used when the node agent starts.
 */
import { readdir, readFile } from 'node:fs/promises';
import { parseProcessStat } from '@sandlot/vmm';

const killWaitMs = 5_000;
/** Most processes between a sandbox's own and its machine: the fake driver has two. */
const maxWrappers = 4;

/**
 * Kills every machine whose arguments name a sandbox's folder below `root`, unless it may be that sandbox's.
 * @param isOwned asked when the process has been seen: whose start is under way at that moment owns what it has made
 * @returns pids of the killed
 */
export async function killStrayMachines(
  root: string,
  isOwned: (sandboxId: string, pid: number) => boolean,
): Promise<number[]> {
  const strays: number[] = [];
  for (const name of await readdir('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid || pid === process.ppid) continue;
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
    const sandboxId = sandboxOf(args, root);
    if (sandboxId === undefined) continue;
    const lineage = [pid, ...(await ancestorsOf(pid))];
    if (!lineage.some((owner) => isOwned(sandboxId, owner))) strays.push(pid);
  }
  for (const pid of strays) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It ended by itself.
    }
  }
  const until = performance.now() + killWaitMs;
  while (strays.some(isAlive) && performance.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return strays;
}

/** Those above a process, nearest first: a sandbox knows the pid of what it has started, which may be a wrapper of the machine. */
async function ancestorsOf(pid: number): Promise<number[]> {
  const found: number[] = [];
  for (let at = pid; found.length < maxWrappers; ) {
    const stat = parseProcessStat(await readFile(`/proc/${at}/stat`, 'latin1').catch(() => ''));
    if (!stat || stat.parentPid <= 1 || stat.parentPid === process.pid) break;
    at = stat.parentPid;
    found.push(at);
  }
  return found;
}

/** The sandbox of a VMM or a fake machine of ours: its program is one of these, and an argument names the folder. */
function sandboxOf(args: string[], root: string): string | undefined {
  const program = (args[0] ?? '').split('/').pop() ?? '';
  if (!/^(qemu-system-|qemu-img|sandlot-agent|nsenter|setpriv)/.test(program)) return undefined;
  const below = `${root}/`;
  const arg = args.find((text) => text.includes(below));
  return arg?.slice(arg.indexOf(below) + below.length).split(/[/,]/)[0];
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
