/** Commands: output, input, results, deadlines, cancelling, re-auth. */
import { Code, ConnectError } from '@connectrpc/connect';
import { afterEach, describe, expect, it } from 'vitest';
import { AbortedError, ConnectionError } from '../src/index.js';
import { event, until } from './command-service.js';
import { ExecServer, type ExecServerOptions } from './exec-server.js';

let server: ExecServer;
afterEach(() => server?.close());

async function sandboxOf(options: ExecServerOptions) {
  server = await ExecServer.open(options);
  return server.sandbox;
}

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

describe('run', () => {
  it('keeps stdout and stderr apart and gives the exit code', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        yield event.stdout('out');
        yield event.stderr('err');
        yield event.stdout(new Uint8Array([0xc3]));
        yield event.stdout(new Uint8Array([0xa9]));
        yield event.end(3);
      },
    });
    const result = await sandbox.run(['sh', '-c', 'x'], { env: { A: '1' }, cwd: '/w', user: 'u' });
    expect(result).toMatchObject({
      stdout: 'outé',
      stderr: 'err',
      exitCode: 3,
      signal: undefined,
      oomKilled: false,
      timedOut: false,
      truncated: false,
    });
    expect(server.commands.starts[0]).toMatchObject({
      command: { cmd: 'sh', args: ['-c', 'x'], envs: { A: '1' }, cwd: '/w', user: 'u' },
      stdin: false,
    });
    expect(server.commands.starts[0]?.sessionUuid).toBeUndefined();
  });

  it('keeps the beginning of too much output and still ends', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        for (let index = 0; index < 100; index++) yield event.stdout('x'.repeat(1000));
        yield event.end();
      },
    });
    const result = await sandbox.run(['x'], { maxOutputBytes: 2_500 });
    expect(result.stdoutBytes.byteLength).toBe(2_500);
    expect(result.truncated).toBe(true);
  });

  it('tells a signal and want of memory from an exit code', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        yield event.end(137, { signal: 9, oomKilled: true });
      },
    });
    expect(await sandbox.run(['x'])).toMatchObject({ exitCode: 137, signal: 'SIGKILL', oomKilled: true });
  });

  it('reports a deadline as a result, and leaves the ending to the server', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        yield event.stdout('so far');
        throw new ConnectError('too long', Code.DeadlineExceeded);
      },
    });
    const result = await sandbox.run(['sleep', '9'], { timeoutMs: 1_500 });
    expect(result).toMatchObject({ timedOut: true, exitCode: 124, stdout: 'so far' });
    expect(server.commands.timeouts).toEqual(['1500']);
  });

  it('takes a stream that breaks after the deadline for the end that was asked for', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        await new Promise((resolve) => setTimeout(resolve, 150));
        server.cut();
      },
    });
    expect(await sandbox.run(['sleep', '9'], { timeoutMs: 100 })).toMatchObject({ timedOut: true });
    await expect(sandbox.run(['sleep', '9'], { timeoutMs: 5_000 })).rejects.toThrow(ConnectionError);
  });

  it('asks for a token once, and again after a 401', async () => {
    const sandbox = await sandboxOf({
      refuse: (count) => (count === 2 ? 401 : undefined),
      async *start() {
        yield event.start();
        yield event.end();
      },
    });
    await sandbox.run(['x']);
    expect(server.auths).toBe(1);
    await sandbox.run(['x']);
    expect(server.auths).toBe(2);
    expect(server.commands.starts).toHaveLength(2);
  });
});

describe('exec', () => {
  it('gives all output in order, and the pid', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start(42);
        yield event.stdout('a');
        yield event.stderr('b');
        yield event.stdout('c');
        yield event.end();
      },
    });
    const process = await sandbox.exec(['x']);
    expect(process.pid).toBe(42);
    const seen = [];
    for await (const { stream, data } of process.output) seen.push(`${stream}:${text(data)}`);
    expect(seen).toEqual(['stdout:a', 'stderr:b', 'stdout:c']);
    expect((await process.wait()).exitCode).toBe(0);
  });

  it('ends when nobody reads what is printed', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        for (let index = 0; index < 50; index++) yield event.stdout(new Uint8Array(100_000));
        yield event.end(5);
      },
    });
    expect((await (await sandbox.exec(['x'])).wait()).exitCode).toBe(5);
  });

  it('slows the command down while a reader is slow', async () => {
    let sent = 0;
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        for (; sent < 400; sent++) yield event.stdout(new Uint8Array(200_000));
        yield event.end();
      },
    });
    const process = await sandbox.exec(['x']);
    const reader = process.stdout[Symbol.asyncIterator]();
    await reader.next();
    await new Promise((resolve) => setTimeout(resolve, 300));
    // 80 MB in all; what fits into the queue and the sockets is far less.
    expect(sent).toBeLessThan(200);
    let size = 200_000;
    for (let next = await reader.next(); !next.done; next = await reader.next())
      size += next.value.byteLength;
    expect(size).toBe(80_000_000);
  });

  it('goes on when a reader leaves early', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        for (let index = 0; index < 50; index++) yield event.stdout(new Uint8Array(100_000));
        yield event.end();
      },
    });
    const process = await sandbox.exec(['x']);
    for await (const _ of process.stdout) break;
    expect((await process.wait()).exitCode).toBe(0);
  });

  it('feeds standard input in order, in pieces, and closes it', async () => {
    let finish = () => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        await finished;
        yield event.end();
      },
    });
    const process = await sandbox.exec(['cat'], { stdin: true });
    void process.write('one');
    void process.write(new Uint8Array(150_000));
    await process.closeStdin();
    expect(server.commands.inputs.map(({ input }) => input?.input.value?.byteLength)).toEqual([
      3, 65_536, 65_536, 18_928, 0,
    ]);
    expect(server.commands.inputs.map(({ closeStdin }) => closeStdin)).toEqual([
      false,
      false,
      false,
      false,
      true,
    ]);
    expect(server.commands.inputs[0]?.session?.selector).toEqual({ case: 'pid', value: 7 });
    expect(new Set(server.commands.inputs.map(({ inputUuid }) => inputUuid)).size).toBe(5);
    await process.signal('SIGTERM');
    expect(server.commands.signals[0]).toMatchObject({ signal: 15 });
    finish();
    await process.wait();
  });

  it('takes input from an iterable, and a terminal with its size', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        await until(() => server.commands.inputs.length === 3);
        yield event.pty('echo');
        yield event.end();
      },
    });
    async function* source() {
      yield new TextEncoder().encode('a');
      yield new TextEncoder().encode('b');
    }
    const process = await sandbox.exec(['sh'], { pty: { cols: 100, rows: 30 }, stdin: source() });
    await process.resize({ cols: 80, rows: 24 });
    const seen = [];
    for await (const { stream, data } of process.output) seen.push(`${stream}:${text(data)}`);
    expect(seen).toEqual(['pty:echo']);
    expect(server.commands.starts[0]?.pty?.size).toMatchObject({ cols: 100, rows: 30 });
    expect(server.commands.updates[0]?.pty?.size).toMatchObject({ cols: 80, rows: 24 });
    expect(server.commands.inputs[0]?.input?.input.case).toBe('pty');
  });

  it('closes the stream when the caller cancels', async () => {
    let closed = false;
    const sandbox = await sandboxOf({
      async *start(_request, context) {
        context.signal.addEventListener('abort', () => {
          closed = true;
        });
        yield event.start();
        yield event.stdout('x');
        await until(() => closed);
      },
    });
    const abort = new AbortController();
    const process = await sandbox.exec(['sleep'], { signal: abort.signal });
    const failed = process.wait().catch((error: unknown) => error);
    abort.abort(new Error('enough'));
    expect(await failed).toBeInstanceOf(AbortedError);
    await until(() => closed);
  });
});
