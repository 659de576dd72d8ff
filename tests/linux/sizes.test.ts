/** What was asked for is what is inside: processors, memory, disk, from the smallest to the largest. */
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { TestNode, type TestSpec } from '../driver/test-node.js';

// Each shape has a template of its own, which is booted first; the largest has a gigabyte of page tables to make.
vi.setConfig({ testTimeout: 400_000, hookTimeout: 400_000 });

const gib = 2 ** 30;
/** Linux counts processor time for programs in these, on every machine (time(7)). */
const ticksPerSecond = 100;

/** Processor time of a process, utime and stime of proc(5). */
function ticksOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]?.split(' ') ?? [];
  return Number(fields[11]) + Number(fields[12]);
}
let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

it.each<[string, Required<Pick<TestSpec, 'vcpus' | 'memoryMiB' | 'diskBytes'>>]>([
  ['the smallest', { vcpus: 1, memoryMiB: 256, diskBytes: 1 * gib }],
  ['an odd one', { vcpus: 3, memoryMiB: 1280, diskBytes: 7.5 * gib }],
  ['a large one', { vcpus: 2, memoryMiB: 4096, diskBytes: 100 * gib }],
  ['the largest', { vcpus: 16, memoryMiB: 65_536, diskBytes: 1000 * gib }],
])('%s', async (_, shape) => {
  const sandbox = await node.request(shape);
  await sandbox.until(
    'it runs',
    async () => ['running', 'failed'].includes((await sandbox.report()).state),
    380_000,
    500,
  );
  const { state, message } = await sandbox.report();
  expect(state, message).toBe('running');
  expect(await sandbox.out('nproc')).toBe(String(shape.vcpus));
  expect(await sandbox.out('grep -c ^processor /proc/cpuinfo')).toBe(String(shape.vcpus));
  const totalMiB = Number(await sandbox.out("free -k | awk '/^Mem:/ {print $2}'")) / 1024;
  expect(totalMiB).toBeLessThanOrEqual(shape.memoryMiB);
  // What the kernel keeps: its own code, and a sixty-fourth for the table of pages.
  expect(totalMiB).toBeGreaterThan(shape.memoryMiB * 0.97 - 64);
  expect(Number(await sandbox.out('blockdev --getsize64 /dev/vda'))).toBe(shape.diskBytes);
  const size = Number(await sandbox.out('df -B1 --output=size / | tail -1'));
  expect(size).toBeLessThanOrEqual(shape.diskBytes);
  expect(size).toBeGreaterThan(shape.diskBytes * 0.93 - 64 * 2 ** 20);
  // Thin: nothing of it is taken on the host that was not written.
  await sandbox.out('head -c 20M /dev/urandom > /root/written && sync && cmp -s /root/written /root/written');
  await sandbox.delete();
});

it('a fraction of a processor is a limit on the host, or a warning that there is none', async () => {
  const sandbox = await node.create({ cpuLimit: 0.25 });
  const { pid, warnings = [] } = await sandbox.report();
  const limited = readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(sandbox.id);
  expect(limited || warnings.some((text) => text.includes('CPU time'))).toBe(true);
  if (limited) {
    const busy = sandbox.run(['timeout', '12', 'python3', '-c', 'while True: pass'], { timeoutMs: 120_000 });
    await pause(3_000);
    const [before, from] = [ticksOf(pid as number), performance.now()];
    await pause(6_000);
    const share = (ticksOf(pid as number) - before) / ticksPerSecond / ((performance.now() - from) / 1_000);
    await busy;
    expect(share).toBeLessThan(0.25 * 1.3);
  }
  await sandbox.delete();
});

it('out of memory the kernel kills the right process, and the end of the command says so', async () => {
  const sandbox = await node.create();
  const innocent = sandbox.run(['/bin/sh', '-c', 'sleep 20; echo innocent'], { timeoutMs: 120_000 });
  const program = 'x = []\nwhile True: x.append(bytearray(b"x" * 2**24))';
  const eater = await sandbox.run(['python3', '-c', program], { timeoutMs: 120_000 });
  expect(eater).toMatchObject({ oomKilled: true, exitCode: 137 });
  // A child that is killed is not the command's own end, but it was killed in its group.
  const parent = await sandbox.sh(`python3 -c '${program}'; echo "then $?"`, { timeoutMs: 120_000 });
  expect(parent.stdout).toBe('then 137\n');
  expect((await innocent).stdout).toBe('innocent\n');
  expect(await sandbox.out('echo still here; cat /proc/1/oom_score_adj')).toBe('still here\n-1000');
  await sandbox.delete();
});
