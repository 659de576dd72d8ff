/** Parses, runs one action, and turns every failure into a message and an exit code. Called by `main.ts` and by tests. */
import { CommanderError } from 'commander';
import { exitCodes } from './cli-error.js';
import type { CliContext } from './context.js';
import { exitCodeOf } from './exit-code.js';
import { describeFailure } from './failure.js';
import { normalizeRunArguments } from './grammar/run-arguments.js';
import { buildProgram } from './program.js';

/** Runs the command line; resolves with the exit code, never rejects. */
export async function runCli(args: readonly string[], context: CliContext): Promise<number> {
  let code = 0;
  const program = buildProgram(context, (result) => {
    code = result;
  });
  try {
    await program.parseAsync(normalizeRunArguments(args, program), { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : exitCodes.usage;
    const failure = describeFailure(error, args, await failedCode(args, error));
    if (wantsJson(args)) context.stderr.write(`${JSON.stringify({ error: failure.json })}\n`);
    else context.stderr.write(failure.text);
    return failure.exitCode;
  }
}

/** `run` has a code of its own, apart from those of commands. */
async function failedCode(args: readonly string[], error: unknown): Promise<number> {
  return isRun(args) ? exitCodes.notRun : exitCodeOf(error);
}

function isRun(args: readonly string[]): boolean {
  const [first, second] = args.filter((arg) => !arg.startsWith('-'));
  return first === 'run' || (first === 'sandbox' && second === 'run');
}

function wantsJson(args: readonly string[]): boolean {
  const own = args.includes('--') ? args.slice(0, args.indexOf('--')) : args;
  return own.some(
    (arg, at) =>
      arg === '--output=json' ||
      arg === '-ojson' ||
      (arg === 'json' && ['--output', '-o'].includes(own[at - 1] ?? '')),
  );
}
