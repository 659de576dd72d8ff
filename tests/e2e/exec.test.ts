/** Commands in a real machine: streams, ends, exit codes, process trees, sessions. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Sandlot } from '@sandlot/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CuttingProxy } from '../driver/cutting-proxy.js';
import { residentMiB } from '../driver/leftovers.js';
import { SeededRandom, seedOfRun } from '../driver/seeded-random.js';
import { TestNode } from '../driver/test-node.js';
import type { TestSandbox } from '../driver/test-sandbox.js';

let node: TestNode;
let sandbox: TestSandbox;

beforeAll(async () => {
  node = await TestNode.start();
  sandbox = await node.create({
    env: { FROM_CREATE: 'create', BOTH: 'create' },
    secrets: { BOTH: 'secret' },
  });
});
afterAll(() => node?.close());

describe('output', () => {
  it('keeps standard output and standard error apart, and tells the exit code', async () => {
    const result = await sandbox.sh('echo out; echo err >&2; exit 7');
    expect(result).toMatchObject({ stdout: 'out\n', stderr: 'err\n', exitCode: 7, signal: undefined });
  });

  it('carries every byte unchanged', async () => {
    const result = await sandbox.run(['python3', '-c', 'import os; os.write(1, bytes(range(256)) * 1024)']);
    expect(Buffer.from(result.stdoutBytes)).toEqual(
      Buffer.alloc(256 * 1024, Buffer.from([...Array(256).keys()])),
    );
  });

  it('does not lose half a UTF-8 character, nor join it wrongly', async () => {
    const program =
      'import os,time; os.write(1, b"a\\xe2\\x82"); time.sleep(0.3); os.write(1, b"\\xac-\\xe2")';
    const result = await sandbox.run(['python3', '-c', program]);
    expect(Buffer.from(result.stdoutBytes).toString('hex')).toBe('61e282ac2de2');
  });

  it('adds environments in order: image, create, secrets, exec', async () => {
    expect(await sandbox.out('echo $FROM_CREATE $BOTH $MINE', { env: { MINE: 'exec' } })).toBe(
      'create secret exec',
    );
    expect(await sandbox.out('echo $BOTH', { env: { BOTH: 'exec' } })).toBe('exec');
  });

  it('holds back a command whose reader is slow, and keeps memory flat', async () => {
    const size = 64 * 2 ** 20;
    const process = await sandbox.exec(['head', '-c', String(size), '/dev/zero']);
    const before = residentMiB(node.pid);
    let read = 0;
    let largest = 0;
    let slowChunks = 0;
    for await (const chunk of process.stdout) {
      read += chunk.byteLength;
      if (slowChunks++ < 20) {
        await pause(50);
        largest = Math.max(largest, residentMiB(node.pid));
      }
    }
    largest = Math.max(largest, residentMiB(node.pid));
    expect((await process.wait()).exitCode).toBe(0);
    expect(read).toBe(size);
    expect(largest - before).toBeLessThan(48);
  });
});

describe('commands that cannot be run', () => {
  it('answers 127 for a missing one, at once', async () => {
    const begin = performance.now();
    const result = await sandbox.run(['/no/such/program']);
    expect(result.exitCode).toBe(127);
    expect(result.stderr).not.toBe('');
    expect(performance.now() - begin).toBeLessThan(5_000);
    expect((await sandbox.run(['nosuchprogram'])).exitCode).toBe(127);
  });

  it.each([
    ['a file that is not executable', ['/etc/passwd'], {}],
    ['a folder', ['/etc'], {}],
    ['a missing working directory', ['true'], { cwd: '/no/such/folder' }],
    ['a missing user', ['true'], { user: 'nosuchuser' }],
  ])('answers 126 for %s, with a line on standard error', async (_what, argv, options) => {
    const result = await sandbox.run(argv, options);
    expect(result.exitCode).toBe(126);
    expect(result.stderr).not.toBe('');
  });
});

describe('input', () => {
  it('is closed unless asked for', async () => {
    expect(await sandbox.out('cat | wc -c')).toBe('0');
  });

  it('is carried to the command and ended', async () => {
    const content = Buffer.alloc(300_000, 'abcdefg');
    expect(await sandbox.out('wc -c', { stdin: content })).toBe('300000');
  });
});

describe('the end of a command', () => {
  it('is when the command itself has exited, although a child holds its pipes', async () => {
    const begin = performance.now();
    const result = await sandbox.sh('sleep 33333 & echo started');
    expect(result.stdout).toBe('started\n');
    expect(performance.now() - begin).toBeLessThan(8_000);
    await sandbox.sh('pkill -f "sleep 3333[3]"');
  });

  it('tells a signal from an exit', async () => {
    expect(await sandbox.sh('kill -TERM $$')).toMatchObject({
      exitCode: 143,
      signal: 'SIGTERM',
      oomKilled: false,
    });
    expect(await sandbox.sh('exit 143')).toMatchObject({ exitCode: 143, signal: undefined });
  });

  it('tells a kill for want of memory from other kills', async () => {
    const greedy = 'b=[]\nwhile True: b.append(bytearray(8 * 2**20))';
    const killed = await sandbox.run(['python3', '-c', greedy]);
    expect(killed).toMatchObject({ exitCode: 137, signal: 'SIGKILL', oomKilled: true });
    expect(await sandbox.sh('kill -KILL $$')).toMatchObject({
      exitCode: 137,
      signal: 'SIGKILL',
      oomKilled: false,
    });
    expect((await sandbox.report()).state).toBe('running');
  });

  it('by a timeout takes the whole tree, a child in a session of its own too', async () => {
    const line = 'setsid sleep 7771 & (trap "" TERM; sleep 7771) & sleep 7771';
    const result = await sandbox.sh(line, { timeoutMs: 1_000 });
    expect(result.timedOut).toBe(true);
    await sandbox.until('the tree has ended', async () => (await sandbox.processesWith('7771')) === 0);
  });

  it('by a client that goes away takes the whole tree', async () => {
    const abort = new AbortController();
    const process = await sandbox.exec(['/bin/sh', '-c', 'setsid sleep 7772 & sleep 7772'], {
      signal: abort.signal,
    });
    await sandbox.until('both run', async () => (await sandbox.processesWith('sleep\0' + '7772')) === 2);
    abort.abort();
    await expect(process.wait()).rejects.toThrow();
    await sandbox.until('the tree has ended', async () => (await sandbox.processesWith('7772')) === 0);
  });
});

describe('sessions', () => {
  const counting = 'import time\nfor n in range(60): print(n, flush=True); time.sleep(0.1)';
  const expected = `${[...Array(60).keys()].join('\n')}\n`;

  it('go on after many lost connections, without a lost or doubled byte', async () => {
    const random = new SeededRandom(seedOfRun('exec'));
    const lines = (word: string, count: number) =>
      Buffer.from([...Array(count).keys()].map((n) => `${n} ${word} é€😀\n`).join(''));
    const expected = { stdout: lines('out', 40_000), stderr: lines('err', 4_000) };
    // The pieces end within characters; the pauses are there so that a second without a connection fits what is kept.
    const program = `import os, time
lines = lambda word, count: ''.join(f'{n} {word} é€😀\\n' for n in range(count)).encode()
out, err = lines('out', 40000), lines('err', 4000)
for n in range(len(out) // 1013 + 1):
  os.write(1, out[n * 1013:][:1013])
  os.write(2, err[n * 101:][:101])
  time.sleep(0.003)
`;
    const proxy = await CuttingProxy.open(node.bridge.url);
    const client = new Sandlot({ url: proxy.url, apiKey: 'none' });
    let cutting = true;
    const cutAgainAndAgain = async () => {
      while (cutting) {
        await pause(random.between(0, 500));
        proxy.cut(random.between(0, 50));
      }
    };
    const cutter = cutAgainAndAgain();
    try {
      const handle = client.sandboxes.handle(sandbox.id);
      const result = await handle.run(['python3', '-c', program], { session: true });
      expect(result).toMatchObject({ exitCode: 0, droppedBytes: 0 });
      expect(proxy.cuts).toBeGreaterThan(5);
      expect(proxy.lostBytes).toBeGreaterThan(0);
      for (const kind of ['stdout', 'stderr'] as const)
        expect(firstDifference(Buffer.from(result[`${kind}Bytes`]), expected[kind])).toBeUndefined();
    } finally {
      cutting = false;
      await cutter;
      client.close();
      await proxy.close();
    }
  });

  it('are found again by their id after kill -9 of the node agent', async () => {
    const session = randomUUID();
    const first = await sandbox.exec(['python3', '-c', counting], { session });
    const { pid } = first;
    first.close();
    await node.killAgent();
    await node.startAgent();
    await sandbox.untilState('running');
    const again = await sandbox.attach(session);
    expect(again.pid).toBe(pid);
    let text = '';
    for await (const chunk of again.stdout) text += Buffer.from(chunk).toString();
    expect(await again.wait()).toMatchObject({ exitCode: 0 });
    expect(expected.endsWith(text)).toBe(true);
    expect(text).toContain('59\n');
  });

  it('take signals by name', async () => {
    const process = await sandbox.exec(['sleep', '7773'], { session: true });
    await process.signal('SIGINT');
    expect(await process.wait()).toMatchObject({ exitCode: 130, signal: 'SIGINT' });
  });

  it('have a terminal of the size that is asked for', async () => {
    const process = await sandbox.exec(['python3', '-c', 'import os; print(os.get_terminal_size())'], {
      pty: { cols: 101, rows: 33 },
    });
    let text = '';
    for await (const { data } of process.output) text += Buffer.from(data).toString();
    expect(text).toContain('columns=101, lines=33');
  });
});

describe('the gateway', () => {
  const call = (token: string, path = sandbox.id) =>
    fetch(`${node.bridge.url}/gw/test/${path}/exec`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ command: 'echo hello; exit 3' }),
    });

  it('runs Prime’s exec', async () => {
    const answer = await call(node.bridge.token(sandbox.id, 1));
    expect(await answer.json()).toEqual({ stdout: 'hello\n', stderr: '', exit_code: 3 });
  });

  it('refuses a token that is broken, expired, or of another sandbox', async () => {
    const good = node.bridge.token(sandbox.id, 1);
    const tokens = [
      `${good.slice(0, -4)}AAAA`,
      node.bridge.token(sandbox.id, 1, -1),
      node.bridge.token('other', 1),
      '',
    ];
    for (const token of tokens) expect((await call(token)).status).toBe(401);
  });
});

/** Where two outputs part, with what is there: of megabytes a diff says nothing. */
function firstDifference(actual: Buffer, expected: Buffer): string | undefined {
  if (actual.equals(expected)) return undefined;
  let at = 0;
  while (at < Math.min(actual.length, expected.length) && actual[at] === expected[at]) at += 1;
  const around = (bytes: Buffer) => bytes.subarray(Math.max(0, at - 20), at + 40).toString('latin1');
  return `at ${at} of ${expected.length} (got ${actual.length}): ${around(actual)} | ${around(expected)}`;
}
