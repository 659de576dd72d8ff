/** `sandlot image rm`. */
import { exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The action. */
export async function run(context: CliContext, [names]: [string[]], options: OutputOptions): Promise<number> {
  const client = await context.client();
  const removed: string[] = [];
  const failed: { name: string; error: string }[] = [];
  for (const name of names) {
    try {
      await client.images.remove(name);
      removed.push(name);
    } catch (error) {
      // Missing or in use: the others are still tried. A server that does not answer ends it.
      const { status } = error as { status?: number };
      if (status !== 404 && status !== 409) throw error;
      failed.push({ name, error: error instanceof Error ? error.message : String(error) });
    }
  }
  if (options.output === 'json') context.out.json({ removed, failed });
  else {
    for (const name of removed) context.out.line(name);
    for (const { name, error } of failed) context.out.note(`sandlot image rm: ${name}: ${error}`);
  }
  return failed.length > 0 ? exitCodes.failed : 0;
}
