/** One `up` or `down` at a time for a data folder. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { withLock } from '../src/up/lock.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'sandlot-up-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe('the lock', () => {
  it('lets one in after the other', async () => {
    const order: string[] = [];
    const work = (name: string) =>
      withLock(
        folder,
        () => undefined,
        async () => {
          order.push(`${name} in`);
          await new Promise((resolve) => setTimeout(resolve, 50));
          order.push(`${name} out`);
        },
      );
    await Promise.all([work('a'), work('b')]);
    const script = `import { withLock } from ${JSON.stringify(path.join(import.meta.dirname, '../dist/up/lock.js'))};
      await withLock(process.argv[1], () => {}, async () => { console.log('in'); await new Promise((r) => setTimeout(r, 400)); });`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script, folder]);
    const ended = once(child, 'exit');
    await once(child.stdout, 'data');
    const begun = performance.now();
    let told = 0;
    await withLock(
      folder,
      (pid) => {
        told = pid;
      },
      async () => undefined,
    );
    expect(told).toBe(child.pid);
    expect(performance.now() - begun).toBeGreaterThan(200);
    await ended;
    const first = order[0]?.[0];
    expect(order.slice(0, 2)).toEqual([`${first} in`, `${first} out`]);
    expect(order).toHaveLength(4);
  });

  it('of a dead process does not count', async () => {
    writeFileSync(path.join(folder, 'lock'), JSON.stringify({ pid: 1, startTicks: 1, version: '' }));
    expect(
      await withLock(
        folder,
        () => undefined,
        async () => 'in',
      ),
    ).toBe('in');
    expect(readdirSync(folder)).toEqual([]);
  });
});
