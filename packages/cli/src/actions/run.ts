/** `sandlot run`: a command in a sandbox, live; its exit code becomes ours. With `--image` in a sandbox made for it. */
import type { Sandbox, View } from '@sandlot/sdk';
import { CliError, exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { parseDuration, parsePairs } from '../output/units.js';
import { createRequest, type ShapeOptions } from './create-request.js';
import { pullWithLogin } from './image-pull.js';
import { runCommand } from './run-command.js';
import { type ViewOptions, viewOf } from './view-options.js';
import { noteWarnings, waitWithProgress } from './wait-with-progress.js';

/** Its options. */
export interface RunCommandOptions extends ShapeOptions, ViewOptions, OutputOptions {
  stdin?: boolean;
  tty?: boolean;
  workdir?: string;
  user?: string;
  image?: string;
}

/** The action. */
export async function run(
  context: CliContext,
  [words]: [string[]],
  options: RunCommandOptions,
): Promise<number> {
  const view = await viewOf(options);
  if (options.image !== undefined) return runInNew(context, options.image, words, options, view);
  const [id, ...argv] = words;
  if (id === undefined) throw usage('an id and a command are missing');
  if (argv.length === 0) throw usage('a command is missing');
  const foreign = onlyForNew(options);
  if (foreign) throw usage(`${foreign} needs --image: it describes a new sandbox`);
  const client = await context.client();
  const sandbox = client.sandboxes.handle(await client.sandboxes.resolveId(id));
  return runIn(context, sandbox, argv, options, view);
}

async function runInNew(
  context: CliContext,
  image: string,
  argv: string[],
  options: RunCommandOptions,
  view: View | undefined,
): Promise<number> {
  if (argv.length === 0) throw usage('a command is missing');
  // Its environment is given to the command; `--timeout` is the command's, the sandbox goes right after.
  const { timeout: _timeout, env: _env, ...shape } = options;
  const request = createRequest(image, shape, context.env);
  const client = await context.client();
  await pullWithLogin(context, client, image, true);
  // A Ctrl-C between two waits must not end us before the sandbox is removed.
  const unsubscribe = context.onSignal('SIGINT', () => undefined);
  const sandbox = await client.sandboxes.create(request).catch((error: unknown) => {
    unsubscribe();
    throw error;
  });
  try {
    const waited = await waitWithProgress(context, client, sandbox.id);
    if (waited === 'interrupted') return exitCodes.interrupted;
    noteWarnings(context, waited);
    return await runIn(context, sandbox, argv, options, view);
  } finally {
    await sandbox.delete().catch((error: unknown) => {
      context.out.note(
        `sandbox ${sandbox.id} could not be removed: ${error instanceof Error ? error.message : error}\n  Run \`sandlot rm ${sandbox.id}\`.`,
      );
    });
    unsubscribe();
  }
}

function runIn(
  context: CliContext,
  sandbox: Sandbox,
  argv: string[],
  options: RunCommandOptions,
  view: View | undefined,
): Promise<number> {
  return runCommand(context, sandbox, argv, {
    stdin: options.stdin ?? false,
    tty: options.tty ?? false,
    json: options.output === 'json',
    exec: {
      env: options.env && parsePairs(options.env, context.env, '--env'),
      cwd: options.workdir,
      user: options.user,
      view,
      timeoutMs:
        options.timeout === undefined ? undefined : parseDuration(options.timeout, 's', '--timeout') * 1000,
    },
  });
}

function onlyForNew(options: RunCommandOptions): string | undefined {
  const names = {
    cpu: '--cpu',
    memory: '--memory',
    disk: '--disk',
    secret: '--secret',
    label: '--label',
    name: '--name',
    team: '--team',
    networkAllow: '--network-allow',
    networkDeny: '--network-deny',
  } as const;
  return Object.entries(names).find(([key]) => options[key as keyof typeof names] !== undefined)?.[1];
}

function usage(problem: string): CliError {
  return new CliError(problem, {
    hint: 'sandlot run ID [--] COMMAND… or sandlot run --image IMAGE [--] COMMAND…',
    exitCode: exitCodes.usage,
  });
}
