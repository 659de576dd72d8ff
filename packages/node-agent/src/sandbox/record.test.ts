import { existsSync, linkSync, mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { RecordFolder, RecordFormError, type SandboxRecord } from './record.js';
import { Sandboxes } from './sandboxes.js';

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

it('counts a disk with two names once', async () => {
  mkdirSync(records.machineFolderOf('a'), { recursive: true });
  const disk = join(records.machineFolderOf('a'), 'next-0.qcow2');
  writeFileSync(disk, Buffer.alloc(1024 * 1024, 'x'));
  linkSync(disk, join(records.machineFolderOf('a'), 'overlay.qcow2'));
  expect(await records.usedBytes()).toBeLessThan(2 * 1024 * 1024);
});

it('reads records, and names the folders without a whole one', async () => {
  const record = { form: 1, spec: { sandboxId: 'whole' } } as SandboxRecord;
  await records.write(record);
  mkdirSync(records.folderOf('none'));
  mkdirSync(records.folderOf('cut'));
  writeFileSync(join(records.folderOf('cut'), 'record.json'), '{"form":1,"sp');
  const found = await records.readAll();
  expect(found.records).toEqual([record]);
  expect(found.strays.sort()).toEqual(['cut', 'none']);
});

it('a record of a newer version stops the start, and is left alone with all that is its', async () => {
  mkdirSync(records.machineFolderOf('newer'), { recursive: true });
  mkdirSync(records.folderOf('none'));
  writeFileSync(join(records.folderOf('newer'), 'record.json'), '{"form":2}');
  // Parts that throw when they are touched.
  const sandboxes = new Sandboxes({ records } as never, {} as never, pino({ level: 'silent' }));
  await expect(sandboxes.open()).rejects.toThrow(RecordFormError);
  expect(existsSync(records.machineFolderOf('newer'))).toBe(true);
  expect(existsSync(records.folderOf('none'))).toBe(true);
});
