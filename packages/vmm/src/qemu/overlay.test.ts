/** Holds the overlay against QEMU's own reading of it. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createOverlay, encodeOverlay } from './overlay.js';

const gib = 1024 ** 3;

describe('overlay', () => {
  let folder: string;
  let backingPath: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'sandlot-overlay-'));
    backingPath = join(folder, 'root fs,with=odd "name"');
    writeFileSync(backingPath, '');
    truncateSync(backingPath, 64 * 1024 * 1024);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  for (const sizeBytes of [512, 64 * 1024 * 1024, gib, 32 * gib + 512, 4096 * gib, 9000 * gib]) {
    it(`of ${sizeBytes} bytes passes qemu-img check`, async () => {
      const path = join(folder, `${sizeBytes}.qcow2`);
      await createOverlay(path, { backingPath, sizeBytes });
      const check = JSON.parse(
        execFileSync('qemu-img', ['check', '--output=json', path], { encoding: 'utf8' }),
      );
      expect(check).toMatchObject({ 'check-errors': 0, format: 'qcow2' });
      expect(check).not.toHaveProperty('corruptions');
      expect(check).not.toHaveProperty('leaks');
      const info = JSON.parse(
        execFileSync('qemu-img', ['info', '--output=json', path], { encoding: 'utf8' }),
      );
      expect(info).toMatchObject({
        'virtual-size': sizeBytes,
        'backing-filename': backingPath,
        'backing-filename-format': 'raw',
      });
      expect(statSync(path).mode & 0o777).toBe(0o600);
      expect(statSync(path).blocks * 512).toBeLessThanOrEqual(16 * 1024);
    });
  }

  it('reads and writes through QEMU', async () => {
    const path = join(folder, 'rw.qcow2');
    const raw = join(folder, 'raw');
    writeFileSync(raw, Buffer.alloc(1024 * 1024, 0x41));
    await createOverlay(path, { backingPath: raw, sizeBytes: gib });
    execFileSync('qemu-io', [
      '-c',
      'read -P 0x41 0 1M',
      '-c',
      'write -P 0x42 512M 64k',
      '-c',
      'read -P 0 1M 1M',
      path,
    ]);
    const found = execFileSync('qemu-io', ['-c', 'read -P 0x42 512M 64k', path], { encoding: 'utf8' });
    expect(found).not.toContain('Pattern verification failed');
  });

  it('is never written over another', async () => {
    const path = join(folder, 'once.qcow2');
    await createOverlay(path, { backingPath, sizeBytes: gib });
    await expect(createOverlay(path, { backingPath, sizeBytes: gib })).rejects.toMatchObject({
      code: 'disk-failed',
    });
  });

  it('refuses sizes and names that the format cannot hold', () => {
    for (const sizeBytes of [0, -512, 513, 1.5, Number.NaN]) {
      expect(() => encodeOverlay({ backingPath, sizeBytes })).toThrow(/cannot have/);
    }
    expect(() => encodeOverlay({ backingPath: `/${'x'.repeat(1100)}`, sizeBytes: 512 })).toThrow(
      /longer than/,
    );
  });
});
