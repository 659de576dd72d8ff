/**
 * One sandbox on KVM as a user has it: create, exec, its clock, pause and resume, a checkpoint with
 * memory, a live fork, delete. Few calls of the command line and a small image, because it runs in an emulated machine. Run by
 * tools/test-kvm.sh.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { accountEntries, busyboxEntries, hostProgramEntries, imageArchive } from '../driver/test-images.js';
import { TestServer } from '../driver/test-server.js';
import { type ClockAnswer, readGuestClock } from './clock-stream.js';

const folder = mkdtempSync(join(tmpdir(), 'slt-kvm-'));
const archive = join(folder, 'busybox.tar');
const image = 'busybox:kvm';
/** Longer than the calls that lie around it take. */
const pauseMs = 30_000;
const shape = ['--memory', '0.25', '--disk', '1'];

interface Info {
  id: string;
  status: string;
  generation: number;
}
interface Status {
  accelerator: string;
  acceleratorReason: string;
  machines: { id: string }[];
}

let server: TestServer;
let id: string;

beforeAll(async () => {
  const entries = [...accountEntries(), ...busyboxEntries(), ...hostProgramEntries('/usr/bin/date')];
  writeFileSync(archive, await imageArchive(entries));
  server = await TestServer.start({ kvm: 'auto', archive });
  await server.mustRun(['image', 'import', archive, image]);
});
afterAll(async () => {
  await server?.close();
  rmSync(folder, { recursive: true, force: true });
});

const out = async (of: string, line: string) =>
  (await server.mustRun(['run', of, '--', '/bin/sh', '-c', line])).trim();
/** A shell line that counts in memory for ever. */
const counting =
  'echo d > /root/d; (i=0; while :; do i=$((i+1)); echo $i > /dev/shm/n; sleep 0.2; done) >/dev/null 2>&1 &';
/** Prints the word on disk, and `alive` if the counter goes on. */
const alive =
  'cat /root/d; a=$(cat /dev/shm/n); i=0; while [ $i -lt 300 ]; do i=$((i+1)); sleep 0.2; b=$(cat /dev/shm/n); ' +
  '[ -n "$b" ] && [ "$b" != "$a" ] && echo alive && break; done; echo count $a';
const countIn = (text: string) => Number(/^count (\d+)$/m.exec(text)?.[1]);

it('the server runs machines on KVM', async () => {
  expect(await server.json<Status>(['status'])).toMatchObject({ accelerator: 'kvm' });
});

it('creates a sandbox and runs commands in it', async () => {
  id = await server.lastLine(['create', image, ...shape, '--label', 'kvm']);
  const line = ['run', id, '--', '/bin/sh', '-c', 'echo out; echo err >&2; exit 7'];
  expect(await server.run(line)).toEqual({ code: 7, stdout: 'out\n', stderr: 'err\n' });
  await out(id, counting);
});

/** A line takes a while in an emulated machine: seen were 0.1 to 1.4 s. Without a new time it is late by the whole pause. */
const lateAtMost = 3;

async function expectClock(of: string): Promise<ClockAnswer> {
  const answer = await readGuestClock(server, of);
  console.log(of, answer);
  expect(answer.lateS).toBeGreaterThan(-0.05);
  expect(answer.lateS).toBeLessThan(lateAtMost);
  return answer;
}

it('gives it a clock that is right, from KVM', async () => {
  expect((await expectClock(id)).source).toBe('kvm-clock');
});

it('saves its memory, and restores it', async () => {
  const before = countIn(await out(id, alive));
  const begin = performance.now();
  const { uptimeS } = await expectClock(id);
  await server.mustRun(['pause', id]);
  const pausedAt = performance.now();
  expect(await server.json<Info>(['get', id])).toMatchObject({ status: 'PAUSED' });
  expect((await server.json<Status>(['status'])).machines).toEqual([]);
  await sleep(pauseMs - (performance.now() - pausedAt));
  const resumedAt = performance.now();
  await server.mustRun(['resume', id]);
  const text = await out(id, alive);
  expect(text).toMatch(/^d\nalive\n/);
  expect(countIn(text)).toBeGreaterThanOrEqual(before);
  const again = await expectClock(id);
  // The pause does not count.
  expect(again.uptimeS).toBeGreaterThan(uptimeS);
  const ranMs = performance.now() - begin - (resumedAt - pausedAt);
  expect(again.uptimeS - uptimeS).toBeLessThan(ranMs / 1000);
});

it('saves a checkpoint with its memory, begins another with it, and goes back to it', async () => {
  await out(id, 'echo one > /dev/shm/c; echo one > /root/c');
  const saved = await server.lastLine(['checkpoint', 'create', id, '--with-memory']);
  await out(id, 'echo two > /dev/shm/c; echo two > /root/c');
  const more = ['--checkpoint', saved, '--restore-memory', '--label', 'kvm'];
  const other = await server.lastLine(['create', ...more]);
  const text = await out(other, `hostname; cat /dev/shm/c /root/c; ${alive}`);
  expect(text).toMatch(new RegExp(`^${other}\none\none\nd\nalive\n`));
  await expectClock(other);
  expect(await server.lastLine(['rollback', id, saved])).toBe(id);
  expect(await out(id, `cat /dev/shm/c /root/c; ${alive}`)).toMatch(/^one\none\nd\nalive\n/);
  await server.mustRun(['rm', other]);
  await server.mustRun(['checkpoint', 'rm', saved]);
});

it('forks it while it runs, and its stream goes on', async () => {
  const talk = server.spawn(['run', '-i', id, '--', '/bin/cat']);
  let heard = '';
  talk.stdout?.setEncoding('utf8').on('data', (text: string) => (heard += text));
  talk.stdin?.write('before\n');
  await expect.poll(() => heard, { timeout: 120_000 }).toBe('before\n');
  const copies = (await server.mustRun(['fork', id, '-n', '2', '--label', 'kvm'])).trim().split('\n');
  expect(new Set(copies).size).toBe(2);
  talk.stdin?.end('after\n');
  await expect.poll(() => heard, { timeout: 120_000 }).toBe('before\nafter\n');
  const facts = new Set<string>();
  for (const copy of copies) {
    const text = await out(copy, `hostname; od -An -N8 -tx1 /dev/urandom; ${alive}`);
    expect(text).toMatch(new RegExp(`^${copy}\n.*\nd\nalive\n`));
    facts.add(text.split('\n')[1] as string);
    await expectClock(copy);
  }
  expect(facts.size).toBe(2);
  expect(await out(id, alive)).toMatch(/^d\nalive\n/);
});

it('removes them all', async () => {
  await server.mustRun(['rm', '--label', 'kvm']);
  expect((await server.json<Status>(['status'])).machines).toEqual([]);
});
