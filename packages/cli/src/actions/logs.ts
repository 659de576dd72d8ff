/** `sandlot logs`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';

/** The action. */
export async function run(context: CliContext, [id]: [string], options: OutputOptions): Promise<void> {
  const client = await context.client();
  const info = await client.sandboxes.find(id);
  const logs = await client.sandboxes.logs(info.id);
  if (options.output === 'json') context.out.json({ id: info.id, logs });
  else context.stdout.write(logs === '' || logs.endsWith('\n') ? logs : `${logs}\n`);
  if (logs === '' && !info.startCommand && !info.entrypoint) {
    context.out.note(`sandbox ${info.id} has no start command, so there are no logs`);
  }
}
