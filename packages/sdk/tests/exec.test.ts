/** Commands: output, input, results, deadlines, cancelling, re-auth, lost connections, sandboxes that end. */
import { Code, ConnectError } from '@connectrpc/connect';
import { afterEach, describe, expect, it } from 'vitest';
import {
  AbortedError,
  ConnectionError,
  type Sandbox,
  SandboxNotRunningError,
  Sandlot,
  ServerError,
} from '../src/index.js';
import { event, until } from './command-service.js';
import { ExecServer, type ExecServerOptions } from './exec-server.js';

let server: ExecServer;
let client: Sandlot;
afterEach(async () => {
  client?.close();
  await server?.close();
});

async function sandboxOf(options: ExecServerOptions) {
  server = await ExecServer.open(options);
  client = new Sandlot({ url: server.url, apiKey: 'k' });
  return client.sandboxes.handle('sb1');
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

describe('a lost connection', () => {
  it('fails a plain command and never runs it twice', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        yield event.stdout('x');
        setTimeout(() => server.cut(), 20);
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      },
    });
    await expect(sandbox.run(['x'])).rejects.toThrow(ConnectionError);
    expect(server.commands.starts).toHaveLength(1);
    expect(server.commands.attaches).toBe(0);
  });

  it('is healed for a session, which is attached again', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        yield event.stdout('before ');
        setTimeout(() => server.cut(), 50);
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      },
      async *attach() {
        yield event.start();
        yield event.stdout('after');
        yield event.end(4);
      },
    });
    const result = await sandbox.run(['x'], { session: 'my-session' });
    expect(result).toMatchObject({ stdout: 'before after', exitCode: 4 });
    expect(server.commands.starts[0]?.sessionUuid).toBe('my-session');
    expect(server.commands.attaches).toBe(1);
  });

  it('again and again, with nothing in between, fails a session in the end', {
    timeout: 20_000,
  }, async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        throw new ConnectError('broken', Code.Internal);
      },
      async *attach() {
        yield event.start();
        throw new ConnectError('broken', Code.Internal);
      },
    });
    await expect(sandbox.run(['x'], { session: true })).rejects.toThrow(ServerError);
    expect(server.commands.attaches).toBe(5);
  });

  it('before the start event is not repeated for a plain command', async () => {
    const sandbox = await sandboxOf({
      // biome-ignore lint/correctness/useYield: it ends without a word
      async *start() {
        server.cut();
      },
    });
    await expect(sandbox.run(['x'])).rejects.toThrow(ConnectionError);
    expect(server.commands.starts).toHaveLength(1);
  });

  it('of a sandbox that has ended is told with its reason', async () => {
    const sandbox = await sandboxOf({
      status: () => ({ status: 'ERROR', errorType: 'OOM_KILLED', errorMessage: 'out of memory' }),
      async *start() {
        yield event.start();
        yield event.stdout('x');
        setTimeout(() => server.cut(), 20);
        await new Promise((resolve) => setTimeout(resolve, 1_000));
      },
    });
    const error = await sandbox.run(['x']).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(SandboxNotRunningError);
    expect(error).toMatchObject({ errorType: 'OOM_KILLED' });
  });
});

describe('kept connections that are dead', () => {
  const quick: ExecServerOptions = {
    async *start() {
      yield event.start();
      yield event.end();
    },
  };

  /** Gives the client a token and eight idle connections, all of which the server then forgets. */
  async function loseIdle(sandbox: Sandbox) {
    await sandbox.run(['x']);
    await Promise.all(Array.from({ length: 8 }, () => sandbox.errorContext()));
    server.forget();
  }

  it('cost a session, an attach and a call of the API one repeat, not one for each', async () => {
    const sandbox = await sandboxOf({
      ...quick,
      async *attach() {
        yield event.start();
        yield event.end(3);
      },
    });
    await loseIdle(sandbox);
    expect((await sandbox.run(['x'], { session: true })).exitCode).toBe(0);
    await loseIdle(sandbox);
    expect((await (await sandbox.attach('s')).wait()).exitCode).toBe(3);
    await loseIdle(sandbox);
    expect(await sandbox.errorContext()).toMatchObject({ status: 'RUNNING' });
  });

  it('are a broken connection for a plain command, whichever way the system says it', async () => {
    const sandbox = await sandboxOf(quick);
    await loseIdle(sandbox);
    const before = server.commands.starts.length;
    const error = await sandbox.run(['x']).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ConnectionError);
    expect((error as ConnectionError).code).toMatch(/^(EPIPE|ECONNRESET)$/);
    expect((error as Error).message).toContain('Start: the connection was closed by the other side');
    expect(server.commands.starts).toHaveLength(before);
    expect((await sandbox.run(['x'])).exitCode).toBe(0);
  });

  it('do not lose a signal', async () => {
    const sandbox = await sandboxOf({
      async *start() {
        yield event.start();
        await until(() => server.commands.signals.length > 0);
        yield event.end(0);
      },
    });
    const process = await sandbox.exec(['x']);
    await sandbox.errorContext();
    server.forget();
    await process.signal('SIGTERM');
    expect((await process.wait()).exitCode).toBe(0);
  });
});

describe('a refusal', () => {
  it('that passes (the node has just been started again) is waited out', async () => {
    const sandbox = await sandboxOf({
      refuse: (count) => (count <= 2 ? 503 : undefined),
      async *start() {
        yield event.start();
        yield event.end();
      },
    });
    expect((await sandbox.run(['x'])).exitCode).toBe(0);
    expect(server.commands.starts).toHaveLength(1);
  });

  it('because the sandbox has ended says why', async () => {
    const sandbox = await sandboxOf({
      refuse: () => 404,
      status: () => ({ status: 'TIMEOUT', errorType: 'TIMEOUT', errorMessage: 'its lifetime is over' }),
      async *start() {
        yield event.start();
      },
    });
    const error = await sandbox.run(['x']).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(SandboxNotRunningError);
    expect((error as Error).message).toContain('its lifetime is over');
  });

  it('after which the command may run (its node went away) is not repeated for a plain one', async () => {
    const sandbox = await sandboxOf({
      // biome-ignore lint/correctness/useYield: it fails at once
      async *start() {
        throw new ConnectError('the connection to the node broke', Code.Aborted);
      },
    });
    await expect(sandbox.run(['x'])).rejects.toThrow(ConnectionError);
    expect(server.commands.starts).toHaveLength(1);
  });

  it('inside the stream is an error of the server', async () => {
    const sandbox = await sandboxOf({
      // biome-ignore lint/correctness/useYield: it fails at once
      async *start() {
        throw new ConnectError('broken', Code.Internal);
      },
    });
    await expect(sandbox.run(['x'])).rejects.toThrow(ServerError);
    expect(server.commands.starts).toHaveLength(1);
  });
});
