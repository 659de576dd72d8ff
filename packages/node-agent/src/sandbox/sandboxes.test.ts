import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { NodeSandboxSpec } from '@sandlot/protocol';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { CheckpointStore } from '../checkpoints/checkpoint-store.js';
import { RecordFolder } from './record.js';
import { Sandboxes } from './sandboxes.js';
import type { StartParts } from './start-parts.js';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-records-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** Parts of a node whose every start waits for its image. */
function parts(records: RecordFolder): StartParts {
  const never = new Promise<never>(() => {});
  const images = {
    isReady: async () => false,
    acquire: () => never,
    release: async () => undefined,
    holders: async () => [],
  };
  const reap = { reap: async () => undefined };
  const snapshots = { ...reap, need: async () => undefined };
  return { records, images, networks: reap, cpuLimits: reap, snapshots } as unknown as StartParts;
}

const spec = { sandboxId: 'sb1', generation: 1, image: 'x', egress: { generation: 0 } } as NodeSandboxSpec;
const log = pino({ level: 'silent' });
const noCheckpoints = { isHolder: () => false } as unknown as CheckpointStore;

it('a sandbox whose record could not be written is not here: the same request begins it later', async () => {
  const records = new RecordFolder(root);
  const write = records.write.bind(records);
  records.write = async () => {
    throw Object.assign(new Error('no room'), { code: 'ENOSPC' });
  };
  const sandboxes = new Sandboxes(parts(records), noCheckpoints, log);
  await expect(sandboxes.put(spec)).rejects.toMatchObject({ code: 'ENOSPC' });
  expect(sandboxes.get('sb1')).toBeUndefined();
  records.write = write;
  await sandboxes.put(spec);
  await expect.poll(() => sandboxes.get('sb1')?.report.imageBuildId).toMatch(/^build-/);
});

/** A process that looks like the machine of a sandbox: what it is told apart by is its command line. */
function pretendMachine(sandboxId: string) {
  const args = ['-e', 'setInterval(() => {}, 1000)', `unix:${join(root, sandboxId, 'm')}/qmp.sock`];
  const child = spawn(process.execPath, args, { argv0: 'qemu-system-x86_64', stdio: 'ignore' });
  children.push(child);
  return { ended: new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal))), child };
}
const children: ReturnType<typeof spawn>[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

it('a reap ends the machine of nobody, and spares one whose start is under way', async () => {
  const sandboxes = new Sandboxes(parts(new RecordFolder(root)), noCheckpoints, log);
  await sandboxes.put(spec);
  const starting = pretendMachine('sb1');
  const nobodys = pretendMachine('sb2');
  await sandboxes.reap();
  expect(await nobodys.ended).toBe('SIGKILL');
  expect(starting.child.exitCode).toBeNull();
  expect(starting.child.signalCode).toBeNull();
});

it('a machine that an earlier node agent began and did not record is ended before its start begins again', async () => {
  const records = new RecordFolder(root);
  await records.write({
    form: 1,
    spec,
    report: { sandboxId: 'sb1', generation: 1, state: 'starting', timings: {} },
  });
  const left = pretendMachine('sb1');
  await new Sandboxes(parts(records), noCheckpoints, log).open();
  expect(await left.ended).toBe('SIGKILL');
});
