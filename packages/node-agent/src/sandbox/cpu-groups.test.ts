/** Control groups of machines, on hosts where a group can be made (as root, or with a delegated tree). */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { afterEach, expect, it } from 'vitest';
import { CpuGroups } from './cpu-groups.js';

const instance = `test${process.pid}`;
const groups = await CpuGroups.open(instance);
const children: ChildProcess[] = [];

afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  }
  await groups.reap(() => false);
});

function start(): number {
  const child = spawn('sleep', ['100'], { stdio: 'ignore' });
  children.push(child);
  return child.pid as number;
}

/** Where it is: in the tree of v2, or in that of v1's controller. */
function groupOf(pid: number): string {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n');
  const line =
    lines.find((one) => /^\d+:([^:]*,)?cpu(,[^:]*)?:/.test(one)) ??
    lines.find((one) => one.startsWith('0::'));
  const inTree = line?.split(':')[2] ?? '';
  const roots = ['/sys/fs/cgroup/cpu', '/sys/fs/cgroup/cpu,cpuacct', '/sys/fs/cgroup'];
  return roots.map((root) => `${root}${inTree}`).find((folder) => existsSync(folder)) ?? inTree;
}

const read = (folder: string, ...names: string[]) => {
  const name = names.find((one) => existsSync(`${folder}/${one}`)) as string;
  return readFileSync(`${folder}/${name}`, 'utf8').trim();
};

it.runIf(groups.available)('a machine gets a share for each vCPU, in the group of its instance', async () => {
  const pid = start();
  expect(await groups.place('one', pid, { vcpus: 4, cpuLimit: 0 })).toBeUndefined();
  const folder = groupOf(pid);
  expect(folder).toMatch(new RegExp(`/sandlot-${instance}/one$`));
  expect(['4096', '400']).toContain(read(folder, 'cpu.shares', 'cpu.weight'));
  expect(read(folder, 'cpu.cfs_quota_us', 'cpu.max')).toMatch(/^(-1|max .*)$/);
});

it.runIf(groups.available)('a fraction of a CPU is a limit', async () => {
  const pid = start();
  expect(await groups.place('half', pid, { vcpus: 1, cpuLimit: 0.5 })).toBeUndefined();
  expect(read(groupOf(pid), 'cpu.cfs_quota_us', 'cpu.max')).toMatch(/^50000\b/);
});

it.runIf(groups.available)('groups go with their sandboxes, those of sandboxes that live stay', async () => {
  const [gone, left, kept] = [start(), start(), start()];
  for (const [id, pid] of Object.entries({ gone, left, kept }))
    await groups.place(id, pid, { vcpus: 1, cpuLimit: 0 });
  const folders = [gone, left].map(groupOf);
  const keptFolder = groupOf(kept);
  for (const child of children.splice(0, 2)) {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  await groups.remove('gone');
  await groups.reap((id) => id === 'kept');
  expect([...folders, keptFolder].map((folder) => existsSync(folder))).toEqual([false, false, true]);
});

it('a limit that cannot be set is told, a share is not', async () => {
  const missing = 2 ** 22 + 1;
  expect(await groups.place('none', missing, { vcpus: 1, cpuLimit: 0.5 })).toMatch(/^No limit on CPU time: /);
  expect(await groups.place('none', missing, { vcpus: 1, cpuLimit: 0 })).toBeUndefined();
});
