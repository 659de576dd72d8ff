/** Asks a yes-or-no question on the terminal. */
import { createInterface } from 'node:readline/promises';
import type { CliContext } from '../context.js';

/** True only for an answer that begins with y. */
export async function confirm(context: CliContext, question: string): Promise<boolean> {
  const lines = createInterface({ input: context.stdin, output: context.stderr });
  try {
    return /^y/i.test((await lines.question(`${question} [y/N] `)).trim());
  } finally {
    lines.close();
  }
}
