/** Results go to stdout, everything else to stderr. Every action writes through this. */
import type { Writable } from 'node:stream';
import type { TerminalStream } from './terminal-stream.js';

/** The two streams of a command. */
export class Output {
  constructor(
    readonly stdout: TerminalStream<Writable>,
    readonly stderr: TerminalStream<Writable>,
  ) {}

  /** A line of the result. */
  line(text = ''): void {
    this.stdout.write(`${text}\n`);
  }

  /** The result as JSON. */
  json(value: unknown): void {
    this.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  }

  /** Progress, a hint, a warning: never part of the result. */
  note(text: string): void {
    this.stderr.write(`${text}\n`);
  }
}
