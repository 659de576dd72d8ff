/**
 * Connects a command in a sandbox with this terminal: output as it comes, input, Ctrl-C, window
 * size. Used by `run`. The first Ctrl-C goes to the command as SIGINT, the second kills it.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import type { ExecOptions, ExecResult, Sandbox, SandboxProcess, SignalName } from '@sandlot/sdk';
import { exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';

/** How it is connected. */
export interface Connection {
  stdin: boolean;
  tty: boolean;
  json: boolean;
  exec: ExecOptions;
}

/** Runs it; resolves with the exit code. */
export async function runCommand(
  context: CliContext,
  sandbox: Sandbox,
  argv: string[],
  connection: Connection,
): Promise<number> {
  // A terminal without input would be of no use; input from elsewhere is taken only when asked for.
  const takesInput = connection.stdin || (connection.tty && context.stdin.isTTY === true);
  const options: ExecOptions = {
    ...connection.exec,
    ...(takesInput ? { stdin: true as const } : {}),
    ...(connection.tty ? { pty: windowSize(context) } : {}),
  };
  if (connection.json) return runForJson(context, sandbox, argv, options);
  const process = await sandbox.exec(argv, options);
  const undo = [forwardSignals(context, process, connection.tty)];
  if (connection.tty && context.stdin.isTTY && context.stdin.setRawMode) {
    context.stdin.setRawMode(true);
    // Node leaves the terminal's own carriage returns on; the one in the sandbox has added what it wants. Without
    // `stty` they stay. Leaving raw mode puts all back.
    spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] });
    undo.push(() => context.stdin.setRawMode?.(false));
  }
  if (takesInput) undo.push(forwardInput(context, process));
  try {
    for await (const { stream, data } of process.output) {
      await write(stream === 'stderr' ? context.stderr : context.stdout, data);
    }
    return exitCodeOf(context, await process.wait(), connection.exec.timeoutMs);
  } finally {
    for (const one of undo.reverse()) one();
    process.close();
  }
}

async function runForJson(
  context: CliContext,
  sandbox: Sandbox,
  argv: string[],
  options: ExecOptions,
): Promise<number> {
  const stdin = options.stdin === true ? (context.stdin as AsyncIterable<Uint8Array>) : undefined;
  const result = await sandbox.run(argv, { ...options, stdin });
  const { stdoutBytes: _out, stderrBytes: _err, ...shown } = result;
  context.out.json(shown);
  return result.exitCode;
}

function exitCodeOf(context: CliContext, result: ExecResult, timeoutMs: number | undefined): number {
  if (result.timedOut) {
    context.out.note(
      `sandlot run: the command did not end within ${(timeoutMs ?? 0) / 1000} s and was ended, with all its children`,
    );
    return exitCodes.timedOut;
  }
  if (result.oomKilled) {
    context.out.note(
      'sandlot run: the sandbox ran out of memory and its kernel killed the command; create one with more --memory',
    );
  }
  return result.exitCode;
}

function forwardSignals(context: CliContext, process: SandboxProcess, tty: boolean): () => void {
  let interrupts = 0;
  const send = (name: SignalName) => {
    process.signal(name).catch((error: unknown) => {
      context.out.note(
        `sandlot run: ${name} was not delivered: ${error instanceof Error ? error.message : error}`,
      );
    });
  };
  const undo = [
    context.onSignal('SIGINT', () => {
      interrupts++;
      if (interrupts === 1) send('SIGINT');
      else if (interrupts === 2) send('SIGKILL');
      else process.close();
    }),
    context.onSignal('SIGTERM', () => send('SIGTERM')),
    context.onSignal('SIGHUP', () => process.close()),
  ];
  if (tty) {
    undo.push(
      context.onSignal('SIGWINCH', () => void process.resize(windowSize(context)).catch(() => undefined)),
    );
  }
  return () => {
    for (const one of undo) one();
  };
}

function forwardInput(context: CliContext, process: SandboxProcess): () => void {
  const { stdin } = context;
  let stopped = false;
  const copy = async () => {
    for await (const chunk of stdin) {
      if (stopped) return;
      await process.write(chunk as Uint8Array);
    }
    if (!stopped) await process.closeStdin();
  };
  // A command that ends without reading all of its input is no failure, as with a pipe.
  copy().catch((error: unknown) => {
    if (!stopped && (error as { code?: string }).code !== 'ENDED') {
      context.out.note(`sandlot run: standard input: ${error instanceof Error ? error.message : error}`);
    }
  });
  return () => {
    stopped = true;
    stdin.destroy();
  };
}

function windowSize(context: CliContext): { cols: number; rows: number } {
  return { cols: context.stdout.columns || 80, rows: context.stdout.rows || 24 };
}

async function write(target: Writable, data: Uint8Array): Promise<void> {
  if (!target.write(data)) await once(target, 'drain');
}
