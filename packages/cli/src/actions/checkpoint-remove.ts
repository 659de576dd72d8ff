/** `sandlot checkpoint rm`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The action. The first that fails ends it; those before it are printed by then. */
export async function run(context: CliContext, [ids]: [string[]], options: OutputOptions): Promise<void> {
  const { checkpoints } = await context.client();
  const deleted: string[] = [];
  for (const text of ids) {
    const id = await checkpoints.resolveId(text);
    await checkpoints.delete(id);
    deleted.push(id);
    if (options.output !== 'json') context.out.line(id);
  }
  if (options.output === 'json') context.out.json({ deleted });
}
