/** `sandlot rollback`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The action. */
export async function run(
  context: CliContext,
  [id, checkpoint]: [string, string],
  options: OutputOptions & { diskOnly?: boolean },
): Promise<void> {
  const { checkpoints, sandboxes } = await context.client();
  const info = await sandboxes.rollback(
    await sandboxes.resolveId(id),
    await checkpoints.resolveId(checkpoint),
    options.diskOnly ? { memory: false } : {},
  );
  if (options.output === 'json') context.out.json(info);
  else context.out.line(info.id);
}
