/** `sandlot status`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { properties } from '../output/table.js';

/** The action. */
export async function run(context: CliContext, _args: [], options: OutputOptions): Promise<void> {
  const client = await context.client();
  const status = await client.server.status();
  if (options.output === 'json') return context.out.json(status);
  const counts = Object.entries(status.sandboxes ?? {})
    .filter(([, count]) => count > 0)
    .map(([state, count]) => `${count} ${state}`);
  context.out.line(
    properties([
      ['server', client.url],
      ['version', status.version],
      ['accelerator', [status.accelerator, status.acceleratorReason].filter(Boolean).join(': ')],
      ['network', status.networkMode],
      ['data', status.dataFolder],
      ['processes', status.processes.map(({ pid, role }) => `${role} (${pid})`).join(', ')],
      ['machines', status.machines.length],
      ['sandboxes', counts.join(', ') || 'none'],
    ]),
  );
  for (const warning of status.warnings ?? []) context.out.note(`warning: ${warning}`);
}
