/** `sandlot image pull`, and the pull before a `create` whose image needs a login. */
import type { Sandlot } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { dockerCredentials, givenCredentials, type LoginOptions } from '../registry-credentials.js';
import { followImage } from './image-progress.js';

/** The action. */
export async function run(
  context: CliContext,
  [name]: [string],
  options: OutputOptions & LoginOptions,
): Promise<void> {
  const auth = (await givenCredentials(context, options)) ?? dockerCredentials(context, name);
  const client = await context.client();
  const image = await followImage(context, name, client.images.pull(name, { auth }));
  if (options.output === 'json') context.out.json(image);
  else context.out.line(`${image.reference}  ${image.digest}`);
}

/**
 * Fetches an image with the login that Docker's file has for its registry, unless the server has the
 * image: a sandbox's own request carries no credentials, so that none are ever stored.
 */
export async function pullWithLogin(context: CliContext, client: Sandlot, name: string): Promise<void> {
  const auth = dockerCredentials(context, name);
  if (!auth) return;
  try {
    await client.images.inspect(name);
    return;
  } catch (error) {
    if ((error as { status?: number }).status !== 404) throw error;
  }
  await followImage(context, name, client.images.pull(name, { auth }));
}
