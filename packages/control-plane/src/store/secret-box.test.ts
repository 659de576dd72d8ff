import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SecretBox } from './secret-box.js';

it('opens what it has sealed, for the same owner and with the same key only', () => {
  const box = new SecretBox(randomBytes(32));
  const sealed = box.seal('geheim ✓', 'a');
  expect(sealed).not.toContain('geheim');
  expect(box.seal('geheim ✓', 'a')).not.toBe(sealed);
  expect(box.open(sealed, 'a')).toBe('geheim ✓');
  expect(() => box.open(sealed, 'b')).toThrow();
  expect(() => new SecretBox(randomBytes(32)).open(sealed, 'a')).toThrow();
  const bytes = Buffer.from(sealed, 'base64');
  bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1;
  expect(() => box.open(bytes.toString('base64'), 'a')).toThrow();
});

it('keeps its key in a file of its owner, made once', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandlot-box-'));
  try {
    const file = join(folder, 'secrets.key');
    const sealed = SecretBox.open(file).seal('x', 'a');
    const key = readFileSync(file);
    expect(SecretBox.open(file).open(sealed, 'a')).toBe('x');
    expect(readFileSync(file)).toEqual(key);
    expect(statSync(file).mode & 0o777).toBe(0o600);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
