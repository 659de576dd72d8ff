/** `sandlot ls`. */
import type { SandboxStatus } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { table } from '../output/table.js';
import { age } from '../output/units.js';

/** The action. */
export async function run(
  context: CliContext,
  _args: [],
  options: OutputOptions & {
    all?: boolean;
    label?: string[];
    status?: string;
    team?: string;
    quiet?: boolean;
  },
): Promise<void> {
  const client = await context.client();
  const rows = [];
  const found = client.sandboxes.list({
    labels: options.label,
    status: options.status?.toUpperCase() as SandboxStatus | undefined,
    teamId: options.team,
    activeOnly: !options.all && options.status === undefined,
  });
  for await (const info of found) rows.push(info);
  if (options.output === 'json') return context.out.json(rows);
  if (options.quiet) {
    for (const info of rows) context.out.line(info.id);
    return;
  }
  context.out.line(
    table(
      ['ID', 'NAME', 'IMAGE', 'STATUS', 'CPU', 'MEMORY', 'AGE', 'LABELS'],
      rows.map((info) => [
        info.id,
        info.name,
        info.dockerImage,
        info.status,
        String(info.cpuCores),
        `${info.memoryGB} GiB`,
        age(info.createdAt, Date.now()),
        info.labels.join(','),
      ]),
    ),
  );
  if (rows.length === 0) {
    context.out.note(
      options.all
        ? 'no sandboxes; `sandlot create IMAGE` makes one'
        : 'none lives; --all shows those that have ended',
    );
  }
}
