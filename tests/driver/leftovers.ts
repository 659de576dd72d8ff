/** Finds what a server has left on the host. Asked by the drivers when they close. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** A process of the host. */
export interface HostProcess {
  pid: number;
  commandLine: string;
}

/** Processes whose command line has `text` in it, except ourselves. */
export function processesWith(text: string): HostProcess[] {
  const found: HostProcess[] = [];
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    try {
      const commandLine = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
      if (commandLine.includes(text)) found.push({ pid, commandLine });
    } catch {
      // It has ended while we looked.
    }
  }
  return found;
}

/** Names of the network namespaces that an instance has made for its sandboxes. */
export function namespacesOf(instanceId: string): string[] {
  return execFileSync('ip', ['netns', 'list'], { encoding: 'utf8' })
    .split('\n')
    .map((line) => line.split(' ')[0] ?? '')
    .filter((name) => name.startsWith(`sl${instanceId}-`));
}

/** Everything of an instance that is still there after its end. */
export function leftoversOf(instanceId: string, dataFolder: string): string[] {
  return [
    ...processesWith(dataFolder).map(({ pid, commandLine }) => `process ${pid} ${commandLine.slice(0, 200)}`),
    ...namespacesOf(instanceId).map((name) => `namespace ${name}`),
    ...readFileSync('/proc/mounts', 'utf8')
      .split('\n')
      .filter((line) => line.includes(dataFolder) || line.includes(`/sl${instanceId}-`))
      .map((line) => `mount ${line}`),
  ];
}

/** Memory of a process that is resident, MiB. */
export function residentMiB(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024;
}
