/** How tests pause and resume a sandbox of a test node, in place of the control plane. Used by the tests of pauses and their faults. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { SandboxReport } from '@sandlot/protocol';
import { namespacesOf, processesWith } from './leftovers.js';
import type { TestNode } from './test-node.js';
import type { TestSandbox } from './test-sandbox.js';

/** Counts in memory, for ever: what goes on after a pause must go on from there. */
export const counting =
  '(i=0; while :; do i=$((i+1)); echo $i > /dev/shm/n; sleep 0.1; done) >/dev/null 2>&1 &';

/** The present count. */
export async function countOf(sandbox: TestSandbox): Promise<number> {
  for (;;) {
    const text = await sandbox.out('cat /dev/shm/n');
    // Empty for a moment while it is written anew.
    if (text !== '') return Number(text);
  }
}

/** Pauses; resolves when it is. */
export async function pauseSandbox(node: TestNode, { id }: TestSandbox): Promise<SandboxReport> {
  const report = await node.report(id);
  return node.ask('POST', `/v1/sandboxes/${id}/pause?generation=${report?.generation}`);
}

/** Begins to resume, with the next generation. */
export async function resumeSandbox(node: TestNode, { id }: TestSandbox): Promise<SandboxReport> {
  const report = await node.report(id);
  return node.ask('POST', `/v1/sandboxes/${id}/resume`, { generation: (report?.generation ?? 0) + 1 });
}

/** Names of the folders of a node's snapshots. */
export function snapshotsOf(node: TestNode): string[] {
  return readdirSync(join(node.dataFolder, 'snapshots'));
}

/** Machines of a node, as processes of the host. */
export function machinesOf(node: TestNode): number[] {
  return processesWith(`${node.dataFolder}/sandboxes`)
    .filter(({ commandLine }) => commandLine.includes('qemu-system'))
    .map(({ pid }) => pid);
}

/** As a restart of the host leaves it: no process, no machine and no network of the node is there, its data is; then it starts again. */
export async function rebootHost(node: TestNode): Promise<void> {
  await node.killAgent();
  for (const { pid } of processesWith(node.dataFolder)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended with another.
    }
  }
  const deadline = performance.now() + 20_000;
  while (processesWith(node.dataFolder).length > 0) {
    if (performance.now() > deadline) throw new Error('what was killed does not end');
    await pause(20);
  }
  for (const name of namespacesOf(node.instanceId)) execFileSync('ip', ['netns', 'delete', name]);
  await node.startAgent();
}
