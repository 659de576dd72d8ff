/**
 * Runs `ip`, `nft`, `nsenter`: a short command with its input on stdin, a deadline, and the tool's own words
 * in the error. Called by everything in this folder that changes the host.
 */
import { spawn } from 'node:child_process';
import { NetworkError } from '../contract.js';

/** How to run a tool. */
export interface ToolOptions {
  /** Written to its stdin. */
  input?: string;
  /** Default 10 s. */
  timeoutMs?: number;
  /** A status other than 0 is not an error. */
  mayFail?: boolean;
}

const maxOutputBytes = 64 * 1024 * 1024;

/** Runs an argv and gives its stdout. Throws {@link NetworkError} `setup-failed`. */
export function runTool(argv: readonly [string, ...string[]], options: ToolOptions = {}): Promise<string> {
  const [command, ...args] = argv;
  const timeoutMs = options.timeoutMs ?? 10_000;
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      env: { ...process.env, LC_ALL: 'C' },
    });
    const out: Buffer[] = [];
    let size = 0;
    let err = '';
    child.stdout.on('data', (part: Buffer) => {
      size += part.length;
      if (size <= maxOutputBytes) out.push(part);
    });
    child.stderr.on('data', (part: Buffer) => {
      if (err.length < 8192) err += part.toString();
    });
    // A tool that ends before it has read its input: its exit says why.
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
    child.on('error', (cause: NodeJS.ErrnoException) => {
      const hint = cause.code === 'ENOENT' ? '; install it (iproute2, nftables, util-linux, procps)' : '';
      reject(new NetworkError('setup-failed', `cannot run ${command}: ${cause.message}${hint}`, { cause }));
    });
    child.on('close', (code, signal) => {
      if (code === 0 || (options.mayFail && code !== null)) return resolve(Buffer.concat(out).toString());
      const why = signal ? `was killed by ${signal} (deadline ${timeoutMs} ms)` : `exited with ${code}`;
      reject(
        new NetworkError(
          'setup-failed',
          `${argv.join(' ').slice(0, 200)} ${why}: ${err.trim().slice(0, 1000)}`,
        ),
      );
    });
  });
}
