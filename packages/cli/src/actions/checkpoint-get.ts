/** `sandlot checkpoint get`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { properties } from '../output/table.js';

/** The action. */
export async function run(context: CliContext, [id]: [string], options: OutputOptions): Promise<void> {
  const { checkpoints } = await context.client();
  const info = await checkpoints.get(await checkpoints.resolveId(id));
  if (options.output === 'json') return context.out.json(info);
  context.out.line(
    properties([
      ['id', info.id],
      ['sandbox', info.sandbox_id],
      ['state', info.state],
      ['why', info.error],
      ['holds', info.with_memory ? 'memory and disk' : 'disk'],
      ['its disk', consistencyText(info.consistency)],
      ['image', info.docker_image],
      ['own bytes', info.own_bytes],
      ['shared bytes', info.shared_bytes],
      ['after', info.parent_id],
      ['depth', info.depth],
      ['created', info.created_at],
      ['deleted at', info.expires_at],
      ['node', info.node_id],
      ['user', info.user_id],
      ['team', info.team_id],
    ]),
  );
}

function consistencyText(consistency: 'application' | 'crash' | null): string | undefined {
  if (consistency === null) return undefined;
  return consistency === 'application'
    ? 'file systems were frozen'
    : 'as after a loss of power, when restored without memory';
}
