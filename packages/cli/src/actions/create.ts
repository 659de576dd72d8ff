/** `sandlot create`: makes a sandbox, waits for it, prints its id. */
import type { SandboxInfo, Sandlot } from '@sandlot/sdk';
import { CliError, exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { createRequest, roundedTimes, type ShapeOptions } from './create-request.js';
import { pullWithLogin } from './image-pull.js';
import { type ViewOptions, viewOf } from './view-options.js';
import { noteWarnings, waitWithProgress } from './wait-with-progress.js';

/** Its options. */
export interface CreateOptions extends ShapeOptions, ViewOptions, OutputOptions {
  startCommand?: string;
  entrypoint?: boolean;
  init?: boolean;
  checkpoint?: string;
  restoreMemory?: boolean;
  wait: boolean;
}

/** The action. */
export async function run(
  context: CliContext,
  [first, rest]: [string | undefined, string[]],
  options: CreateOptions,
): Promise<number> {
  const client = await context.client();
  // Without an image every word belongs to the command.
  const { checkpoint } = options;
  const isFromImage = checkpoint === undefined;
  const image = isFromImage ? (first ?? '') : undefined;
  const command = isFromImage || first === undefined ? rest : [first, ...rest];
  const create = createRequest(image, options, context.env);
  if (!isFromImage) create.checkpoint = await client.checkpoints.resolveId(checkpoint);
  if (options.restoreMemory) create.restoreMemory = true;
  create.view = await viewOf(options);
  for (const text of roundedTimes(options)) context.out.note(text);
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
  if (options.init) create.init = true;

  if (image !== undefined) await pullWithLogin(context, client, image, options.wait);
  const sandbox = await client.sandboxes.create(create);
  let info = sandbox.info;
  if (options.wait) {
    const waited = await waitWithProgress(context, client, sandbox.id);
    if (waited === 'interrupted') {
      context.out.note(`sandbox ${sandbox.id} goes on starting; \`sandlot rm ${sandbox.id}\` removes it`);
      return exitCodes.interrupted;
    }
    info = await withStartCommandsEnd(client, waited, create.startCommand !== undefined);
    noteFailedStart(context, info);
  }
  if (options.output === 'json') context.out.json(info);
  else {
    noteWarnings(context, info);
    context.out.line(sandbox.id);
  }
  return 0;
}

/** A command that can not be run ends at once, but its end may be known a moment after the sandbox runs. */
async function withStartCommandsEnd(
  client: Sandlot,
  info: SandboxInfo,
  hasCommand: boolean,
): Promise<SandboxInfo> {
  if (!hasCommand || typeof info.exitCode === 'number') return info;
  // The sandbox is made: a look that fails is no failure of the create.
  return client.sandboxes.info(info.id).catch(() => info);
}

/** The codes of a command that could not be run: not found, not executable. */
function noteFailedStart(context: CliContext, { id, exitCode }: SandboxInfo): void {
  if (exitCode !== 126 && exitCode !== 127) return;
  const why = exitCode === 127 ? 'it was not found' : 'it cannot be executed';
  context.out.note(
    `warning: the start command ended with ${exitCode}: ${why}; \`sandlot logs ${id}\` shows its output`,
  );
}
