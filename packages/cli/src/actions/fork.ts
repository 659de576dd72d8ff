/** `sandlot fork`: running copies of a sandbox; prints their ids, one a line. */
import { exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { parsePairs } from '../output/units.js';
import { minutes } from './create-request.js';

/** Its options. */
export interface ForkCommandOptions extends OutputOptions {
  count?: number;
  label?: string[];
  env?: string[];
  name?: string;
  timeout?: string;
  partial?: boolean;
}

/** The action. Copies that do not run are told on stderr, and make the exit code 1. */
export async function run(context: CliContext, [id]: [string], options: ForkCommandOptions): Promise<number> {
  const client = await context.client();
  const { sandboxes, errors } = await client.sandboxes.fork(await client.sandboxes.resolveId(id), {
    count: options.count,
    labels: options.label,
    env: options.env && parsePairs(options.env, context.env, '--env'),
    name: options.name,
    timeoutMinutes: options.timeout === undefined ? undefined : minutes(options.timeout, '--timeout'),
    allowPartial: options.partial,
  });
  if (options.output === 'json') context.out.json({ sandboxes: sandboxes.map(({ info }) => info), errors });
  else {
    for (const sandbox of sandboxes) context.out.line(sandbox.id);
    for (const { index, message } of errors) context.out.note(`sandlot fork: copy ${index + 1}: ${message}`);
  }
  return errors.length > 0 ? exitCodes.failed : 0;
}
