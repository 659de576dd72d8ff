import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { killStrayMachines } from './stray-machines.js';

let root: string;
let wrapper: ReturnType<typeof spawn>;
let inner: number;

/** A wrapper with what looks like a fake machine in it, as the fake driver starts it. */
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'sandlot-strays-'));
  const program = `
    const { spawn } = require('node:child_process');
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', process.argv[1]], { argv0: 'sandlot-agent', stdio: 'ignore' });
    child.once('spawn', () => console.log(child.pid)).once('exit', () => process.exit());
    setInterval(() => {}, 1000);`;
  wrapper = spawn(process.execPath, ['-e', program, join(root, 'sb1', 'm')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  inner = await new Promise((resolve) => wrapper.stdout?.once('data', (text) => resolve(Number(text))));
});
afterEach(() => {
  wrapper.kill('SIGKILL');
  try {
    process.kill(inner, 'SIGKILL');
  } catch {
    // It has ended, as one of the tests wants it to.
  }
  rmSync(root, { recursive: true, force: true });
});

it('spares a machine inside the wrapper that its sandbox has started', async () => {
  expect(await killStrayMachines(root, (id, pid) => id === 'sb1' && pid === wrapper.pid)).toEqual([]);
  expect(wrapper.exitCode).toBeNull();
});

it('ends one inside a wrapper that nobody owns', async () => {
  expect(await killStrayMachines(root, () => false)).toEqual([inner]);
});
