/** `sandlot image rm`. */
import type { CliContext } from '../context.js';
import { exitCodeOf } from '../exit-code.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The action. */
export async function run(context: CliContext, [names]: [string[]], options: OutputOptions): Promise<number> {
  const client = await context.client();
  const removed: string[] = [];
  let code = 0;
  const failed: { name: string; error: string }[] = [];
  for (const name of names) {
    try {
      await client.images.remove(name);
      removed.push(name);
    } catch (error) {
      // Missing or in use: the others are still tried. A server that does not answer ends it.
      const { status } = error as { status?: number };
      if (status !== 404 && status !== 409) throw error;
      // That of the first failure.
      code ||= await exitCodeOf(error);
      failed.push({ name, error: error instanceof Error ? error.message : String(error) });
    }
  }
  if (options.output === 'json') context.out.json({ removed, failed });
  else {
    for (const name of removed) context.out.line(name);
    for (const { name, error } of failed) context.out.note(`sandlot image rm: ${name}: ${error}`);
  }
  return code;
}
