/** `sandlot checkpoint create`: saves a sandbox, waits until that can be restored, prints its id. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The action. */
export async function run(
  context: CliContext,
  [id]: [string],
  options: OutputOptions & { withMemory?: boolean; ttl?: number },
): Promise<void> {
  const client = await context.client();
  const info = await client.checkpoints.create(await client.sandboxes.resolveId(id), {
    memory: options.withMemory,
    ttl: options.ttl === undefined ? undefined : Math.ceil(options.ttl),
  });
  if (options.output === 'json') context.out.json(info);
  else context.out.line(info.id);
}
