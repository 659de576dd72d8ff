/** A failure of the command line's own: what failed, what to do, and the exit code. */
export class CliError extends Error {
  override name = 'CliError';
  /** What to do about it. */
  readonly hint: string | undefined;
  readonly exitCode: number;

  constructor(message: string, options: { hint?: string; exitCode?: number; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.hint = options.hint;
    this.exitCode = options.exitCode ?? exitCodes.failed;
  }
}

/** Exit codes beside those of a command that `run` passes through. */
export const exitCodes = {
  /** The command of `sandlot` failed. */
  failed: 1,
  /** The command line is wrong. */
  usage: 2,
  /** `run` ended because its time was over, as timeout(1). */
  timedOut: 124,
  /** `run` could not run the command: no server, no such sandbox, a broken connection. */
  notRun: 125,
  /** Ended by Ctrl-C. */
  interrupted: 130,
} as const;
