/** What of an instance is still on this host: machines, network namespaces, rules. `down` looks before it says that nothing is left. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import type { Layout } from './layout.js';

/** Names of what is left, for a person; empty when there is nothing. */
export function findLeftovers(layout: Layout, instanceId: string, isRoot: boolean): string[] {
  const machines = machinesOf(layout.node).map((pid) => `machine process ${pid}`);
  if (!isRoot) return machines;
  // Names of the host side begin with `sl` and the instance id (packages/node-agent/src/network).
  const namespaces = lines('ip', ['netns', 'list'])
    .map((line) => line.split(' ')[0] ?? '')
    .filter((name) => name.startsWith(`sl${instanceId}-`));
  const tables = lines('nft', ['list', 'tables']).filter((line) => line.endsWith(`slhost${instanceId}`));
  return [
    ...machines,
    ...namespaces.map((name) => `network namespace ${name}`),
    ...tables.map((line) => `nftables ${line}`),
  ];
}

/** QEMU processes that work in the instance's folder. */
function machinesOf(nodeFolder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        const [program = '', ...args] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        return program.includes('qemu-system') && args.some((arg) => arg.includes(`${nodeFolder}/`));
      } catch {
        // It ended meanwhile, or is not ours to look at.
        return false;
      }
    })
    .map(Number);
}

function lines(program: string, args: string[]): string[] {
  const path = `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin`;
  const done = spawnSync(program, args, {
    encoding: 'utf8',
    timeout: 10_000,
    env: { ...process.env, PATH: path },
  });
  return done.error || done.status !== 0 ? [] : done.stdout.split('\n').filter((line) => line !== '');
}
