/** `sandlot image prune`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { bytes } from '../output/units.js';

/** The action. */
export async function run(context: CliContext, _args: [], options: OutputOptions): Promise<void> {
  const result = await (await context.client()).images.prune();
  if (options.output === 'json') return context.out.json(result);
  for (const name of result.removed) context.out.line(name);
  context.out.note(`freed ${bytes(result.freedBytes)}`);
}
