/** `sandlot create`: makes a sandbox, waits for it, prints its id. */
import { CliError, exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { createRequest, type ShapeOptions } from './create-request.js';
import { pullWithLogin } from './image-pull.js';
import { noteWarnings, waitWithProgress } from './wait-with-progress.js';

/** Its options. */
export interface CreateOptions extends ShapeOptions, OutputOptions {
  startCommand?: string;
  entrypoint?: boolean;
  wait: boolean;
}

/** The action. */
export async function run(
  context: CliContext,
  [image, command]: [string, string[]],
  options: CreateOptions,
): Promise<number> {
  const client = await context.client();
  const create = createRequest(image, options, context.env);
  const given = [command.length > 0, options.startCommand !== undefined, options.entrypoint === true];
  if (given.filter(Boolean).length > 1) {
    throw new CliError('more than one start command was given', {
      hint: 'Give a command after --, or --start-command, or --entrypoint.',
      exitCode: exitCodes.usage,
    });
  }
  if (command.length > 0) create.startCommand = command;
  else if (options.startCommand !== undefined) create.startCommand = options.startCommand;
  else if (options.entrypoint) create.startCommand = { entrypoint: true };

  await pullWithLogin(context, client, image, options.wait);
  const sandbox = await client.sandboxes.create(create);
  let info = sandbox.info;
  if (options.wait) {
    const waited = await waitWithProgress(context, client, sandbox.id);
    if (waited === 'interrupted') {
      context.out.note(`sandbox ${sandbox.id} goes on starting; \`sandlot rm ${sandbox.id}\` removes it`);
      return exitCodes.interrupted;
    }
    info = waited;
  }
  if (options.output === 'json') context.out.json(info);
  else {
    noteWarnings(context, info);
    context.out.line(sandbox.id);
  }
  return 0;
}
