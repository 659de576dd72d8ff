/**
 * What an action may touch: the streams, the environment, the settings, the client. The real one is
 * made once in `main.ts`; tests make their own.
 */
import { homedir } from 'node:os';
import type { Readable, Writable } from 'node:stream';
import type { Sandlot } from '@sandlot/sdk';
import { Output } from './output/output.js';
import type { TerminalStream } from './output/terminal-stream.js';
import { readSettings, type Settings } from './settings.js';

/** The world of one invocation. */
export interface CliContext {
  env: Record<string, string | undefined>;
  stdin: TerminalStream<Readable> & { setRawMode?: (raw: boolean) => unknown };
  stdout: TerminalStream<Writable> & { columns?: number; rows?: number };
  stderr: TerminalStream<Writable> & { columns?: number };
  homeFolder: string;
  isRoot: boolean;
  out: Output;
  /** Read once, when first asked. */
  settings(): Settings;
  /** A client for the configured server. */
  client(): Promise<Sandlot>;
  /** Subscribes to a signal of this process; the answer unsubscribes. */
  onSignal(name: NodeJS.Signals, listener: () => void): () => void;
}

/** The context of this process. */
export function processContext(): CliContext {
  const { stdin, stdout, stderr } = process;
  // A reader that has gone (`| head`) is no crash.
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(141);
  });
  return makeContext({
    env: process.env,
    stdin,
    stdout,
    stderr,
    homeFolder: process.env['HOME'] || homedir(),
    isRoot: process.getuid?.() === 0,
    onSignal(name, listener) {
      process.on(name, listener);
      return () => process.off(name, listener);
    },
  });
}

/** Adds what follows from the streams and the environment. */
export function makeContext(world: Omit<CliContext, 'out' | 'settings' | 'client'>): CliContext {
  let settings: Settings | undefined;
  const read = () => {
    settings ??= readSettings(world.env, world.homeFolder, world.isRoot);
    return settings;
  };
  return {
    ...world,
    out: new Output(world.stdout, world.stderr),
    settings: read,
    async client() {
      const { Sandlot } = await import('@sandlot/sdk');
      const { url, apiKey } = read();
      return new Sandlot({ url: url.value, apiKey: apiKey?.value ?? '' });
    },
  };
}
