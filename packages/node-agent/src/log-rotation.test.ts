/** Logs that are set aside: nothing lost, nothing twice, no more than three, and writers that need not know. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { LogRotation, type LogRotationOptions } from './log-rotation.js';

let folder: string;
let rotation: LogRotation | undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sandlot-logs-'));
});
afterEach(async () => {
  await rotation?.close();
  rmSync(folder, { recursive: true, force: true });
});

const read = (name: string) => readFileSync(join(folder, name), 'utf8');

function rotate(options: LogRotationOptions): LogRotation {
  rotation = new LogRotation(
    folder,
    (error) => {
      throw error;
    },
    options,
  );
  return rotation;
}

it('keeps three old ones, and what is written after goes on in the same file', async () => {
  const log = openSync(join(folder, 'a.log'), 'a');
  try {
    const small = rotate({ maxBytes: 10 });
    for (let round = 1; round <= 6; round++) {
      writeSync(log, `round ${round} is long enough\n`);
      await small.check();
      expect(statSync(join(folder, 'a.log')).size).toBe(0);
    }
    writeSync(log, 'short\n');
    await small.check();
    expect(readdirSync(folder).sort()).toEqual(['a.log', 'a.log.1', 'a.log.2', 'a.log.3']);
    expect(read('a.log')).toBe('short\n');
    expect([1, 2, 3].map((number) => /\d/.exec(read(`a.log.${number}`))?.[0])).toEqual(['6', '5', '4']);
  } finally {
    closeSync(log);
  }
});

it('loses no line of our own, and none twice, however fast they come', async () => {
  const log = openSync(join(folder, 'a.log'), 'a');
  try {
    const small = rotate({ maxBytes: 20_000, kept: 40 });
    let lines = 0;
    // Until it has happened several times in the middle of writing.
    while (readdirSync(folder).length < 6 && lines < 1_000_000) {
      for (let more = 0; more < 50; more++) writeSync(log, `${lines++}\n`);
      void small.check();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await small.close();
    const files = readdirSync(folder).sort((left, right) => numberOf(right) - numberOf(left));
    expect(files.length).toBeGreaterThan(5);
    const all = files.map(read).join('').trim().split('\n').map(Number);
    expect(all).toEqual(Array.from({ length: lines }, (_, line) => line));
  } finally {
    closeSync(log);
  }
});

it("cuts another process's log without its help", async () => {
  const log = openSync(join(folder, 'b.log'), 'a');
  const child = spawn('sh', ['-c', 'while read -r line; do echo "$line"; done'], {
    stdio: ['pipe', log, log],
  });
  closeSync(log);
  const says = async (text: string) => {
    child.stdin?.write(`${text}\n`);
    await expect.poll(() => read('b.log')).toContain(text);
  };
  await says('before, and rather long');
  await rotate({ maxBytes: 10 }).check();
  expect(read('b.log')).toBe('');
  await says('after');
  expect([read('b.log'), read('b.log.1')]).toEqual(['after\n', 'before, and rather long\n']);
  child.stdin?.end();
  await once(child, 'exit');
});

function numberOf(name: string): number {
  return Number(/\.(\d+)$/.exec(name)?.[1] ?? 0);
}

it.skipIf(process.getuid?.() !== 0)(
  'gives up old logs, then the full one, where there is no room for a copy',
  async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=400k', 'tmpfs', folder]);
    try {
      writeFileSync(join(folder, 'a.log'), Buffer.alloc(160 * 1024, 'x'));
      writeFileSync(join(folder, 'a.log.2'), Buffer.alloc(200 * 1024, 'y'));
      const small = rotate({ maxBytes: 100 * 1024 });
      await small.check();
      expect(readdirSync(folder)).toEqual(['a.log']);
      writeFileSync(join(folder, 'other'), Buffer.alloc(220 * 1024));
      await small.check();
      expect(statSync(join(folder, 'a.log')).size).toBe(0);
      expect(readdirSync(folder).sort()).toEqual(['a.log', 'other']);
    } finally {
      execFileSync('umount', [folder]);
    }
  },
);
