/** `sandlot image pull`. */
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { followImage } from './image-progress.js';

/** The action. */
export async function run(
  context: CliContext,
  [name]: [string],
  options: OutputOptions & { username?: string },
): Promise<void> {
  const password = context.env['SANDLOT_REGISTRY_PASSWORD'];
  if (options.username !== undefined && !password) {
    throw new CliError('--username needs a password', {
      hint: 'Set SANDLOT_REGISTRY_PASSWORD.',
      exitCode: 2,
    });
  }
  const credentials =
    options.username === undefined || !password ? undefined : { username: options.username, password };
  const client = await context.client();
  const image = await followImage(context, name, client.images.pull(name, { credentials }));
  if (options.output === 'json') context.out.json(image);
  else context.out.line(`${image.reference}  ${image.digest}`);
}
