/** `sandlot image pull`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { followImage } from './image-progress.js';

/** The action. */
export async function run(context: CliContext, [name]: [string], options: OutputOptions): Promise<void> {
  const client = await context.client();
  const image = await followImage(context, name, client.images.pull(name));
  if (options.output === 'json') context.out.json(image);
  else context.out.line(`${image.reference}  ${image.digest}`);
}
