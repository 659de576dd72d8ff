/** Commands whose connection is lost, was dead before, or is refused: what is repeated, and what never is. */
import { Code, ConnectError } from '@connectrpc/connect';
import { afterEach, describe, expect, it } from 'vitest';
import { ConnectionError, type Sandbox, SandboxNotRunningError, ServerError } from '../src/index.js';
import { event, until } from './command-service.js';
import { ExecServer, type ExecServerOptions } from './exec-server.js';

let server: ExecServer;
afterEach(() => server?.close());

async function sandboxOf(options: ExecServerOptions) {
  server = await ExecServer.open(options);
  return server.sandbox;
}

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
