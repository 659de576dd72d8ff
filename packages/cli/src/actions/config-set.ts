/** `sandlot config set`. */
import { CliError, exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import { writeConfigFile } from '../settings.js';

const names = ['url', 'api_key', 'data'] as const;

/** The action. */
export async function run(context: CliContext, [name, value]: [string, string]): Promise<void> {
  const known = names.find((candidate) => candidate === name);
  if (!known) {
    throw new CliError(`there is no setting "${name}"`, {
      hint: `Settings: ${names.join(', ')}.`,
      exitCode: exitCodes.usage,
    });
  }
  // A URL that no command can use would only be told by the next one.
  if (known === 'url' && value !== '') await checkUrl(value);
  const { file } = context.settings();
  writeConfigFile(file, { [known]: value === '' ? undefined : value });
  context.out.note(`${value === '' ? 'removed' : 'set'} ${name} in ${file}`);
}

async function checkUrl(value: string): Promise<void> {
  const { parseUrl } = await import('@sandlot/sdk/client');
  try {
    parseUrl(value);
  } catch (error) {
    throw new CliError(error instanceof Error ? error.message : String(error), { exitCode: exitCodes.usage });
  }
}
