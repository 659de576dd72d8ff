/** Asks both daemons whether they understand their flags, before a running one is stopped for them. Used by `up`. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { CliError, exitCodes } from '../cli-error.js';
import type { DaemonSpec } from './daemon.js';

/** A daemon only reads its flags and ends. */
const checkTimeoutMs = 30_000;

/** Throws what is wrong with the flags; gives what is only questionable, such as an expired certificate. */
export async function checkOptions(daemons: readonly DaemonSpec[]): Promise<string[]> {
  return (await Promise.all(daemons.map(checkOne))).flat();
}

async function checkOne({ role, main, args, user }: DaemonSpec): Promise<string[]> {
  try {
    const { stdout } = await promisify(execFile)(process.execPath, [main, ...args, '--check-options'], {
      timeout: checkTimeoutMs,
      cwd: '/',
      // Files that it is to read must be open to that user.
      ...(user ? { uid: user.uid, gid: user.gid } : {}),
    });
    return stdout.split('\n').filter((line) => line !== '');
  } catch (cause) {
    const said = String((cause as { stderr?: unknown }).stderr ?? '')
      .trim()
      .replace(`${role}: `, '');
    throw new CliError(said || `the ${role} could not be asked about its flags`, {
      cause: said ? undefined : cause,
      hint: 'Nothing was started or stopped. `sandlot up --help` explains the flags.',
      exitCode: exitCodes.usage,
    });
  }
}
