/** `sandlot resume`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { actOnEach } from './act-on-each.js';

/** The action. */
export function run(context: CliContext, [ids]: [string[]], options: OutputOptions): Promise<void> {
  return actOnEach(context, ids, options, (client, id) => client.sandboxes.resume(id));
}
