/** Starts a command, attaches to one, and runs one to its end. Called by the Sandbox handle. */
import { randomUUID } from 'node:crypto';
import { ConflictError, NotFoundError, SandlotError } from '../errors.js';
import { joinChunks } from '../http/read-limited.js';
import type { View } from '../views.js';
import type { CommandChannel } from './command-channel.js';
import { openStream, type WhyNotRunning } from './event-stream.js';
import type { ExecOptions, RunOptions, RunResult } from './exec-types.js';
import { SandboxProcess } from './process.js';
import { Received } from './received.js';

const defaultMaxOutputBytes = 16 * 1024 * 1024;

/** Starts `argv`; resolves when it has been started. */
export async function startProcess(
  channel: CommandChannel,
  whyNotRunning: WhyNotRunning,
  argv: readonly string[],
  options: ExecOptions,
): Promise<SandboxProcess> {
  const [cmd, ...args] = argv;
  if (!cmd)
    throw new SandlotError('exec: the command is empty; give at least a program', { code: 'BAD_REQUEST' });
  const session = options.session === true ? randomUUID() : options.session;
  const request = {
    command: {
      cmd,
      args,
      envs: options.env ?? {},
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.user === undefined ? {} : { user: options.user }),
    },
    stdin: options.stdin !== undefined,
    ...(options.pty ? { pty: { size: options.pty } } : {}),
    ...(session === undefined ? {} : { sessionUuid: session }),
    ...(options.view ? { view: messageOf(options.view) } : {}),
  };
  // Before the request goes out: the server's clock starts when it comes in.
  const deadline = options.timeoutMs === undefined ? undefined : performance.now() + options.timeoutMs;
  const received = session === undefined ? undefined : new Received();
  const opened = await openStream(
    channel,
    {
      kind: 'start',
      request,
      timeoutMs: options.timeoutMs,
      isFresh: options.session === true,
      received,
    },
    whyNotRunning,
    options.signal,
  );
  const process = new SandboxProcess({
    channel,
    opened,
    session,
    received,
    terminal: options.pty !== undefined,
    signal: options.signal,
    whyNotRunning,
    deadline,
  });
  if (options.stdin !== undefined && options.stdin !== true) void feed(process, options.stdin);
  return process;
}

/** A view as the service has it. */
function messageOf({ hide = [], readonly = [], strength, privateTmp, network }: View) {
  return {
    hide: [...hide],
    readonly: [...readonly],
    ...(strength === undefined ? {} : { strength }),
    ...(privateTmp === undefined ? {} : { privateTmp }),
    ...(network === undefined ? {} : { network }),
  };
}

/** Attaches to a session that was started before. */
export async function attachProcess(
  channel: CommandChannel,
  whyNotRunning: WhyNotRunning,
  session: string,
  options: { signal?: AbortSignal | undefined; terminal?: boolean | undefined },
): Promise<SandboxProcess> {
  const received = new Received();
  const target = { kind: 'attach' as const, session, received };
  const opened = await openStream(channel, target, whyNotRunning, options.signal);
  return new SandboxProcess({
    channel,
    opened,
    session,
    received,
    terminal: options.terminal ?? false,
    signal: options.signal,
    whyNotRunning,
  });
}

/** Waits for the end and collects the output up to the limit. */
export async function collectRun(process: SandboxProcess, options: RunOptions): Promise<RunResult> {
  const limit = options.maxOutputBytes ?? defaultMaxOutputBytes;
  const [stdout, stderr, result] = await Promise.all([
    collect(process.stdout, limit),
    collect(process.stderr, limit),
    process.wait(),
  ]);
  return {
    ...result,
    stdout: new TextDecoder().decode(stdout.bytes),
    stderr: new TextDecoder().decode(stderr.bytes),
    stdoutBytes: stdout.bytes,
    stderrBytes: stderr.bytes,
    truncated: stdout.truncated || stderr.truncated,
  };
}

async function collect(source: AsyncIterable<Uint8Array>, limit: number) {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let truncated = false;
  // Reads to the end also beyond the limit: a full pipe would stop the command.
  for await (const chunk of source) {
    const kept = chunk.subarray(0, limit - size);
    if (kept.byteLength < chunk.byteLength) truncated = true;
    if (kept.byteLength === 0) continue;
    chunks.push(kept);
    size += kept.byteLength;
  }
  return { bytes: joinChunks(chunks, size), truncated };
}

/** Feeds content given at the start. A command that ends without reading it all is not a failure, as with a pipe. */
async function feed(
  process: SandboxProcess,
  content: string | Uint8Array | AsyncIterable<Uint8Array>,
): Promise<void> {
  try {
    if (typeof content === 'string' || content instanceof Uint8Array) await process.write(content);
    else for await (const chunk of content) await process.write(chunk);
    await process.closeStdin();
  } catch (error) {
    if (error instanceof ConflictError || error instanceof NotFoundError) return;
    // A source or a connection that failed: without its input the command would wait for ever.
    process.close(
      error instanceof SandlotError
        ? error
        : new SandlotError('exec: the source of standard input failed', {
            code: 'INPUT_FAILED',
            cause: error,
          }),
    );
  }
}
