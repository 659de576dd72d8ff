import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { RecordFolder } from './record.js';

let root: string;
let records: RecordFolder;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-records-'));
  records = new RecordFolder(root);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

it('counts what machines take of the disk, not how large their files could get', async () => {
  expect(await new RecordFolder(join(root, 'missing')).usedBytes()).toBe(0);
  for (const id of ['a', 'b']) {
    mkdirSync(records.machineFolderOf(id), { recursive: true });
    const disk = join(records.machineFolderOf(id), 'disk');
    writeFileSync(disk, Buffer.alloc(1024 * 1024, 'x'));
    truncateSync(disk, 1024 * 1024 * 1024);
  }
  const used = await records.usedBytes();
  expect(used).toBeGreaterThanOrEqual(2 * 1024 * 1024);
  expect(used).toBeLessThan(3 * 1024 * 1024);
});
