/** Commands as real users run them: orphans, children that outlive them, terminals, many at once, long ones. What tests/e2e/exec.test.ts has is not here. */
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { busyboxEntries, imageArchive, staticProgram } from '../driver/test-images.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

let node: TestNode;
let sandbox: TestSandbox;

beforeAll(async () => {
  node = await TestNode.start();
  sandbox = await node.create({ memoryMiB: 768 });
});
afterAll(() => node?.close());

/** Leaves 800 processes behind that end a little later, in sessions of their own: process 1 inherits them all. */
const orphansProgram = `
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  for (int n = 0; n < 800; n++) {
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
      pid_t orphan = fork();
      if (orphan == 0) { setsid(); usleep(500000); _exit(n % 256); }
      _exit(orphan < 0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) return 2;
  }
}
`;

/** Prime's exec, with what it took. */
async function primeExec(command: string): Promise<{ answer: unknown; ms: number }> {
  const begun = performance.now();
  const answer = await fetch(`${node.bridge.url}/gw/test/${sandbox.id}/exec`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${node.bridge.token(sandbox.id, 1)}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({ command, timeout: 100 }),
  });
  return { answer: await answer.json(), ms: performance.now() - begun };
}

/** All of a terminal's output. */
async function terminalOutput(
  where: TestSandbox,
  argv: string[],
  env: Record<string, string> = {},
): Promise<string> {
  const process = await where.exec(argv, { pty: { cols: 80, rows: 24 }, env });
  let text = '';
  for await (const { data } of process.output) text += Buffer.from(data).toString();
  await process.wait();
  return text;
}

describe('processes', () => {
  it('800 orphans are reaped, and there is room for more', { timeout: 300_000 }, async () => {
    await sandbox.files.uploadStream(staticProgram(orphansProgram), '/root/orphans');
    await sandbox.out('chmod +x /root/orphans && /root/orphans', { timeoutMs: 200_000 });
    const zombies = `python3 -c "
import glob
count = 0
for path in glob.glob('/proc/[0-9]*/stat'):
    try: count += open(path).read().rsplit(')', 1)[1].split()[0] == 'Z'
    except OSError: pass
print(count)"`;
    await sandbox.until('no zombie is left', async () => (await sandbox.out(zombies)) === '0', 30_000, 500);
    expect(await sandbox.out('for n in $(seq 50); do /bin/true || exit 1; done; echo room')).toBe('room');
  });

  it('a child that holds the output does not hold the answer, on any way; and it lives on', async () => {
    const line = 'nohup sh -c "sleep 20; echo lived > /root/lived" & echo at once';
    const begun = performance.now();
    expect((await sandbox.sh(line, { session: true })).stdout).toContain('at once');
    expect(performance.now() - begun).toBeLessThan(12_000);
    const { answer, ms } = await primeExec(
      'nohup sh -c "sleep 20; echo lived > /root/lived-too" & echo at once',
    );
    expect(answer).toMatchObject({ exit_code: 0, stdout: expect.stringContaining('at once') });
    expect(ms).toBeLessThan(12_000);
    await sandbox.until(
      'both have ended by themselves',
      async () => (await sandbox.sh('cat /root/lived /root/lived-too')).stdout === 'lived\nlived\n',
      60_000,
      1_000,
    );
  });

  it('a command without a limit of time runs longer than a minute, silent all the while', async () => {
    const process = await sandbox.exec(['sh', '-c', 'sleep 75; echo done']);
    let text = '';
    for await (const chunk of process.stdout) text += Buffer.from(chunk).toString();
    expect(text).toBe('done\n');
    expect(await process.wait()).toMatchObject({ exitCode: 0 });
  });

  it('thirty at once each get their own answer', async () => {
    const numbers = [...Array(30).keys()];
    const answers = await Promise.all(
      numbers.map((n) => sandbox.sh(`echo ${n}; echo e${n} >&2; exit ${n}`, { timeoutMs: 100_000 })),
    );
    expect(answers.map(({ stdout, stderr, exitCode }) => [stdout, stderr, exitCode])).toEqual(
      numbers.map((n) => [`${n}\n`, `e${n}\n`, n]),
    );
  });

  it('the end of one listener of a session does not stop the other, nor the command', async () => {
    const program = 'import time\nfor n in range(40): print(n, "x" * 3000, flush=True); time.sleep(0.1)';
    const first = await sandbox.exec(['python3', '-c', program], { session: true });
    await pause(1_000);
    const second = await sandbox.attach(first.session as string);
    first.close();
    let text = '';
    for await (const chunk of second.stdout) text += Buffer.from(chunk).toString();
    expect(await second.wait()).toMatchObject({ exitCode: 0 });
    expect(text.endsWith(`39 ${'x'.repeat(3000)}\n`)).toBe(true);
  });

  it('commands that read their input see its end at once, on every way', async () => {
    expect(await sandbox.out('cat; read line || echo ended', { session: true })).toBe('ended');
    const { answer, ms } = await primeExec('cat; python3 -c "input()" 2>&1 | tail -1');
    expect(answer).toMatchObject({ stdout: expect.stringContaining('EOFError') });
    expect(ms).toBeLessThan(20_000);
  });

  it('a missing command is told on every way, and at once', async () => {
    expect(await sandbox.run(['no-such-command'], { session: true })).toMatchObject({ exitCode: 127 });
    const { answer, ms } = await primeExec('no-such-command');
    expect(answer).toMatchObject({ exit_code: 127 });
    expect(ms).toBeLessThan(8_000);
  });
});

describe('text', () => {
  it('characters that come a byte at a time are whole for clients that decode', async () => {
    const program = 'import os,time\nfor b in "é€😀".encode() * 3: os.write(1, bytes([b])); time.sleep(0.05)';
    expect((await sandbox.run(['python3', '-c', program])).stdout).toBe('é€😀é€😀é€😀');
    const { answer } = await primeExec(`python3 -c '${program}'`);
    expect(answer).toMatchObject({ stdout: 'é€😀é€😀é€😀' });
    expect(await terminalOutput(sandbox, ['python3', '-c', program])).toBe('é€😀é€😀é€😀');
  });

  it('a large answer is whole', async () => {
    const begun = performance.now();
    const result = await sandbox.run(['head', '-c', String(40 * 2 ** 20), '/dev/zero'], {
      maxOutputBytes: 64 * 2 ** 20,
      timeoutMs: 120_000,
    });
    expect(result.stdoutBytes.byteLength).toBe(40 * 2 ** 20);
    expect(performance.now() - begun).toBeLessThan(100_000);
  });

  it('root has a HOME; a terminal has a UTF-8 locale if the image has one, edits by characters, and sets what is set', async () => {
    expect(await sandbox.out('echo $HOME; cd && pwd', { user: 'root' })).toBe('/root\n/root');
    const locale = { name: 'usr/lib/locale/C.utf8/', type: 'dir' as const };
    await node.importArchive(await imageArchive([...busyboxEntries(), locale]), 'locale:1');
    await node.importArchive(await imageArchive(busyboxEntries()), 'no-locale:1');
    const ask = ['sh', '-c', 'echo "$LANG $TERM"; stty -a | grep -o iutf8'];
    const one = await node.create({ image: 'locale:1' });
    expect(await terminalOutput(one, ask)).toBe('C.UTF-8 xterm\r\niutf8\r\n');
    expect(await terminalOutput(one, ask, { LC_ALL: 'POSIX', TERM: 'vt100' })).toContain(' vt100\r\n');
    expect(await terminalOutput(one, ask, { LANG: 'POSIX' })).toContain('POSIX xterm');
    expect(await one.out('echo "$LANG $TERM"')).toBe('');
    const other = await node.create({ image: 'no-locale:1', env: {} });
    expect(await terminalOutput(other, ask)).toBe(' xterm\r\niutf8\r\n');
    await one.delete();
    await other.delete();
  });
});
