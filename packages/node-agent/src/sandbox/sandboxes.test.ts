import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { NodeSandboxSpec } from '@sandlot/protocol';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { RecordFolder } from './record.js';
import { Sandboxes } from './sandboxes.js';
import type { StartParts } from './start-steps.js';

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
  return { records, images, networks: reap, cpuLimits: reap } as unknown as StartParts;
}

const spec = { sandboxId: 'sb1', generation: 1, image: 'x', egress: { generation: 0 } } as NodeSandboxSpec;
const log = pino({ level: 'silent' });

it('a sandbox whose record could not be written is not here: the same request begins it later', async () => {
  const records = new RecordFolder(root);
  const write = records.write.bind(records);
  records.write = async () => {
    throw Object.assign(new Error('no room'), { code: 'ENOSPC' });
  };
  const sandboxes = new Sandboxes(parts(records), log);
  await expect(sandboxes.put(spec)).rejects.toMatchObject({ code: 'ENOSPC' });
  expect(sandboxes.get('sb1')).toBeUndefined();
  records.write = write;
  await sandboxes.put(spec);
  await expect.poll(() => sandboxes.get('sb1')?.report.imageBuildId).toMatch(/^build-/);
});
