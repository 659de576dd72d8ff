/**
 * Finds machine processes by their command line: one that was started just before we died is in no
 * record, but its arguments name its folder below ours. Used when the node agent starts.
 */
import { readdir, readFile } from 'node:fs/promises';

const killWaitMs = 5_000;

/** Kills every process whose arguments name a path below `root`, except the known ones, ourselves and our parent. @returns their pids */
export async function killStrayMachines(root: string, known: Set<number>): Promise<number[]> {
  const strays: number[] = [];
  for (const name of await readdir('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid || pid === process.ppid || known.has(pid)) continue;
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
    if (isMachine(args, root)) strays.push(pid);
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

/** A VMM or a fake machine of ours: its program is one of these, and an argument names the folder. */
function isMachine(args: string[], root: string): boolean {
  const program = (args[0] ?? '').split('/').pop() ?? '';
  const isVmm = /^(qemu-system-|qemu-img|sandlot-agent|nsenter|setpriv)/.test(program);
  return isVmm && args.some((arg) => arg.includes(`${root}/`));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
