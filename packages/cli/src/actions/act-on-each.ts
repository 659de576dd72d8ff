/** Does the same with each sandbox that was named, one after the other, and prints the ids. Used by `pause` and `resume`. */
import type { SandboxInfo, Sandlot } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The first that fails ends it; those before it are printed by then. */
export async function actOnEach(
  context: CliContext,
  ids: readonly string[],
  options: OutputOptions,
  act: (client: Sandlot, id: string) => Promise<SandboxInfo>,
): Promise<void> {
  const client = await context.client();
  const done: SandboxInfo[] = [];
  for (const id of ids) {
    const info = await act(client, await client.sandboxes.resolveId(id));
    done.push(info);
    if (options.output !== 'json') context.out.line(info.id);
  }
  if (options.output === 'json') context.out.json(done.length === 1 ? done[0] : done);
}
