/** `make bench-load` in small: the same program, so that it cannot rot. What must work, not how fast. */
import { availableParallelism } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { inCheckout, pythonArchive } from '../driver/checkout.js';
import { TestServer } from '../driver/test-server.js';

const image = 'python:3.11-slim';
const sandboxes = 64;
/** Beyond them: for the creates and deletes that go on beside. */
const room = 24;

let server: TestServer;

beforeAll(async () => {
  const agent = inCheckout('guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent');
  const overcommit = Math.ceil((sandboxes + room) / availableParallelism());
  const flags = ['--driver', 'fake', '--agent-binary', agent, '--cpu-overcommit', String(overcommit)];
  flags.push('--memory-overcommit', '1000', '--disk-overcommit', '1000');
  server = await TestServer.start({ kvm: 'never', flags });
  await server.mustRun(['image', 'import', pythonArchive, image], { timeoutMs: 120_000 });
}, 300_000);
afterAll(() => server?.close(), 180_000);

it('many sandboxes with streams, execs, reads, creates and deletes at once: nothing fails', async () => {
  const { code, stdout, stderr } = await server.runProgram(
    'tests/bench/load/main.mjs',
    ['--sandboxes', String(sandboxes), '--seconds', '12', '--creates-per-minute', '32'],
    { timeoutMs: 280_000 },
  );
  expect(code, stderr).toBe(0);
  const figures = new Map(stdout.split('\n').map((line) => [line.split(' ')[0], line.split(' ')[1]]));
  for (const name of ['load-errors', 'load-streams-lost', 'load-streams-at-once-failures'])
    expect(figures.get(name), stdout).toBe('0');
  for (const name of ['load-status-p99', 'load-exec-p99', 'load-create-p99'])
    expect(figures.get(name), stdout).toMatch(/^[\d.]+ms$/);
  for (const name of ['load-loop-control-plane', 'load-loop-node-agent'])
    expect(figures.get(name), stdout).toMatch(/^[\d.]+ms$/);
  expect(figures.get('load-stalled-client'), stdout).toMatch(/KiB$/);
}, 300_000);
