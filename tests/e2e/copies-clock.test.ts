/** The wall clock of copies and resumed sandboxes, measured against the host's: right within 50 ms from the first answer on. */
import { setTimeout as pause } from 'node:timers/promises';
import type { SandboxProcess } from '@sandlot/sdk';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { pauseSandbox, resumeSandbox } from '../driver/pauses.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

vi.setConfig({ testTimeout: 240_000 });

/** What the specification promises, ms. */
const limitMs = 50;
const rounds = 15;

let node: TestNode;

beforeAll(async () => {
  node = await TestNode.start();
});
afterAll(() => node?.close());

const sayTime = `import sys, time
for line in sys.stdin: print(line.strip(), time.time(), flush=True)`;

/** A process that says the time when it is asked: no start of a command lies in between. */
async function createClock(): Promise<TestSandbox> {
  const sandbox = await node.create({ tokensFrom: 1 });
  const clock = await sandbox.exec(['python3', '-c', sayTime], { session: 'clock', stdin: true });
  await measure(clock);
  return sandbox;
}

/** How far its clock is from ours, and the doubt about it: half of what the quickest question took. */
async function measure(clock: SandboxProcess): Promise<{ offMs: number; doubtMs: number }> {
  const output = clock.stdout[Symbol.asyncIterator]();
  let text = '';
  let best = { offMs: Number.NaN, doubtMs: Number.POSITIVE_INFINITY };
  for (let round = 0; round < rounds; round++) {
    const mark = `${Math.random()}`;
    const askedMs = Date.now();
    await clock.write(`${mark}\n`);
    while (!new RegExp(`${mark} [\\d.]+\\n`).test(text)) {
      const { value, done } = await output.next();
      if (done) throw new Error('the clock has ended');
      text += Buffer.from(value).toString();
    }
    const saidMs = Number(new RegExp(`${mark} ([\\d.]+)\\n`).exec(text)?.[1]) * 1000;
    const doubtMs = (Date.now() - askedMs) / 2;
    if (doubtMs < best.doubtMs) best = { offMs: saidMs - askedMs - doubtMs, doubtMs };
  }
  clock.close();
  return best;
}

async function expectRight(sandbox: TestSandbox, what: string): Promise<void> {
  const { offMs, doubtMs } = await measure(await sandbox.attach('clock'));
  process.stderr.write(`clock ${what}: off by ${offMs.toFixed(1)} ms, ${doubtMs.toFixed(1)} ms in doubt\n`);
  expect(doubtMs, 'the host is too busy to measure').toBeLessThan(limitMs);
  expect(Math.abs(offMs)).toBeLessThan(limitMs + doubtMs);
}

it('of copies, and of one that was paused', async () => {
  const source = await createClock();
  for (const copy of await node.requestFork(source, 2)) {
    expect((await copy.untilState('running', 'failed')).state).toBe('running');
    await expectRight(copy, 'of a copy');
    await copy.delete();
  }
  for (const restMs of [0, 2_000]) {
    await pauseSandbox(node, source);
    await pause(restMs);
    await resumeSandbox(node, source);
    await source.untilState('running');
    await expectRight(source, `after a pause of ${restMs} ms`);
  }
  await source.delete();
});
