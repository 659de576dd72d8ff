/** Holds the identity of processes: parsing of /proc, corpses, reuse of pids. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  identifyProcess,
  isRunning,
  killProcess,
  parseProcessStat,
  waitUntilGone,
} from './process-identity.js';

function statLine(pid: number, command: string, state: string, startTicks: number): string {
  const fields = Array.from({ length: 50 }, () => '0');
  fields[0] = state;
  fields[19] = String(startTicks);
  return `${pid} (${command}) ${fields.join(' ')}\n`;
}

describe('parseProcessStat', () => {
  it('reads any command, also one made to deceive', () => {
    fc.assert(
      fc.property(
        fc.string({ maxLength: 15 }),
        fc.integer({ min: 1, max: 4_194_304 }),
        fc.nat(),
        (command, pid, ticks) => {
          expect(parseProcessStat(statLine(pid, command, 'S', ticks))).toEqual({
            pid,
            command,
            state: 'S',
            parentPid: 0,
            startTicks: ticks,
          });
        },
      ),
    );
    expect(parseProcessStat(statLine(7, 'a) R 1 2 (b', 'Z', 9))).toMatchObject({ state: 'Z', startTicks: 9 });
  });

  it('says nothing of what is no such line', () => {
    for (const text of ['', 'x', '1 (a', '1 (a) S 1 2', 'x (a) S'])
      expect(parseProcessStat(text)).toBeUndefined();
  });

  it('reads our own line as the kernel writes it', () => {
    const stat = parseProcessStat(readFileSync('/proc/self/stat', 'latin1'));
    expect(stat).toMatchObject({ pid: process.pid, parentPid: process.ppid });
    expect(stat!.startTicks).toBeGreaterThan(0);
  });
});

describe('a process', () => {
  it('is known while it runs, and only by its own start', async () => {
    const child = spawn('sleep', ['60']);
    const identity = identifyProcess(child.pid!)!;
    expect(isRunning(identity)).toBe(true);
    const impostor = { ...identity, startTicks: identity.startTicks - 1 };
    expect(isRunning(impostor)).toBe(false);
    killProcess(impostor);
    expect(isRunning(identity)).toBe(true);
    expect(await waitUntilGone(identity, 20)).toBe(false);
    killProcess(identity);
    expect(await waitUntilGone(identity, 5000)).toBe(true);
    killProcess(identity);
  });

  it('is gone as a corpse', async () => {
    // What the shell has become never waits for the child, which stays a corpse.
    const shell = spawn('sh', ['-c', 'sleep 0.1 & echo $!; exec sleep 60']);
    const pid = await new Promise<number>((resolve) =>
      shell.stdout.once('data', (text) => resolve(Number(text))),
    );
    try {
      const deadline = performance.now() + 5000;
      while (identifyProcess(pid) && performance.now() < deadline) await new Promise((r) => setTimeout(r, 5));
      expect(identifyProcess(pid)).toBeUndefined();
      expect(readFileSync(`/proc/${pid}/stat`, 'latin1')).toContain(') Z ');
    } finally {
      shell.kill('SIGKILL');
    }
  });
});
