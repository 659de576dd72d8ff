// What our daemons and machines use, read from /proc. Used by the memory, image and churn groups.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Pids of a process and all that descend from it, without QEMU's (machines are not the daemon). */
export function listTree(pid) {
  const parents = new Map();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'latin1');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (!stat.includes('(qemu-system')) parents.set(Number(name), Number(fields[1]));
    } catch {
      // It ended while we looked.
    }
  }
  const found = [pid];
  for (let i = 0; i < found.length; i++) {
    for (const [child, parent] of parents) if (parent === found[i]) found.push(child);
  }
  return found;
}

/** Proportional memory of processes, MiB; those that ended count nothing. */
export function readPssMiB(pids) {
  let kib = 0;
  for (const pid of pids) {
    try {
      const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
      kib += Number(/^Pss:\s+(\d+)/m.exec(rollup)?.[1] ?? 0);
    } catch {
      // It ended while we looked.
    }
  }
  return kib / 1024;
}

/** Open descriptors of processes: `PROGRAM: WHAT` of each, numbers of sockets and pipes left out. */
export function listDescriptors(pids) {
  return pids.flatMap((pid) => {
    const folder = `/proc/${pid}/fd`;
    try {
      const program = readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
      return readdirSync(folder).flatMap((number) => {
        try {
          return [`${program}: ${readlinkSync(`${folder}/${number}`).replace(/:\[\d+\]$/, '')}`];
        } catch {
          return [];
        }
      });
    } catch {
      // It ended while we looked.
      return [];
    }
  });
}

/** Watches the highest memory of a process tree until `stop()`, which answers it in MiB. */
export function watchPeak(pid, everyMs = 100) {
  let peak = 0;
  const look = () => {
    peak = Math.max(peak, readPssMiB(listTree(pid)));
  };
  look();
  const timer = setInterval(look, everyMs);
  return () => {
    clearInterval(timer);
    look();
    return peak;
  };
}
