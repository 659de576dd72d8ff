import { type ChildProcess, spawn } from 'node:child_process';
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { findHeldFile } from './held-file.js';

let root: string;
let path: string;
let holder: ChildProcess;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-held-'));
  mkdirSync(join(root, 'template'));
  path = join(root, 'template/memory');
  writeFileSync(path, 'old');
  const file = openSync(path, 'r');
  holder = spawn('sleep', ['60'], { stdio: ['ignore', 'ignore', 'ignore', file] });
  closeSync(file);
});
afterEach(() => {
  holder.kill('SIGKILL');
  rmSync(root, { recursive: true, force: true });
});

const read = async () => readFileSync(await findHeldFile(holder.pid as number, path), 'utf8');

it('finds a file by its name, and when the name is gone by who holds it', async () => {
  expect(await findHeldFile(holder.pid as number, path)).toBe(path);
  rmSync(path);
  expect(await read()).toBe('old');
});

it('is not taken in by another file that has the name by now', async () => {
  rmSync(join(root, 'template'), { recursive: true });
  mkdirSync(join(root, 'template'));
  writeFileSync(path, 'new');
  expect(await read()).toBe('old');
});

it('says so when nobody holds it', async () => {
  renameSync(path, join(root, 'template/other'));
  await expect(findHeldFile(holder.pid as number, path)).rejects.toMatchObject({ code: 'save-failed' });
});
