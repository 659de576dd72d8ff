/** `sandlot checkpoint ls`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { table } from '../output/table.js';
import { age, bytes } from '../output/units.js';

/** The action. */
export async function run(
  context: CliContext,
  [id]: [string | undefined],
  options: OutputOptions & { quiet?: boolean },
): Promise<void> {
  const { checkpoints, sandboxes } = await context.client();
  const found = await checkpoints.list(id === undefined ? undefined : await sandboxes.resolveId(id));
  if (options.output === 'json') return context.out.json(found);
  if (options.quiet) {
    for (const info of found) context.out.line(info.id);
    return;
  }
  context.out.line(
    table(
      ['ID', 'SANDBOX', 'STATE', 'HOLDS', 'OWN', 'SHARED', 'DEPTH', 'AGE', 'IMAGE'],
      found.map((info) => [
        info.id,
        info.sandbox_id,
        info.state,
        info.with_memory ? 'memory, disk' : 'disk',
        info.own_bytes === null ? '' : bytes(info.own_bytes),
        info.shared_bytes === null ? '' : bytes(info.shared_bytes),
        String(info.depth),
        age(info.created_at, Date.now()),
        info.docker_image,
      ]),
    ),
  );
  if (found.length === 0) context.out.note('no checkpoints; `sandlot checkpoint create ID` makes one');
}
