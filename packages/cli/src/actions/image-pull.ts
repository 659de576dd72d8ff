/** `sandlot image pull`, and the pull before a `create` whose image needs a login. */
import type { ImageEvent, Sandlot } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import {
  dockerCredentials,
  dockerLogin,
  givenCredentials,
  type LoginOptions,
  noteHelper,
} from '../registry-credentials.js';
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
 * image: a sandbox's own request carries no credentials, so that none are ever stored. A login that
 * is refused (an expired one) does not stand in the way: the server may get the image without.
 * `wait` false: the caller does not want to wait for a pull, and is told what that means.
 */
export async function pullWithLogin(
  context: CliContext,
  client: Sandlot,
  name: string,
  wait: boolean,
): Promise<void> {
  const { auth, helper } = dockerLogin(context, name);
  if (!auth && helper === undefined) return;
  if (await isThere(client, name)) return;
  if (helper !== undefined) noteHelper(context, name, helper);
  else if (!wait)
    context.out.note(
      `the server pulls ${name} without a login, as nothing is waited for; a private image needs \`sandlot image pull ${name}\` first`,
    );
  else await pullUnlessRefused(context, name, client.images.pull(name, { auth }));
}

async function pullUnlessRefused(
  context: CliContext,
  name: string,
  events: AsyncIterable<ImageEvent>,
): Promise<void> {
  try {
    await followImage(context, name, events);
  } catch (error) {
    // The code of the node's image store.
    if ((error as { code?: string }).code !== 'unauthorized') throw error;
    context.out.note(`${(error as Error).message}; going on without the login in Docker's file`);
  }
}

async function isThere(client: Sandlot, name: string): Promise<boolean> {
  try {
    await client.images.inspect(name);
    return true;
  } catch (error) {
    if ((error as { status?: number }).status !== 404) throw error;
    return false;
  }
}
