/** `sandlot image ls`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { table } from '../output/table.js';
import { age, bytes } from '../output/units.js';

/** The action. */
export async function run(
  context: CliContext,
  _args: [],
  options: OutputOptions & { quiet?: boolean },
): Promise<void> {
  const images = await (await context.client()).images.list();
  if (options.output === 'json') return context.out.json(images);
  if (options.quiet) {
    for (const image of images) context.out.line(image.reference);
    return;
  }
  context.out.line(
    table(
      ['NAME', 'DIGEST', 'LAYERS', 'ROOT', 'IN USE', 'AGE'],
      images.map((image) => [
        image.reference,
        image.digest.slice(0, 19),
        bytes(image.contentBytes),
        image.rootfsBytes === 0 ? 'not built' : bytes(image.rootfsBytes),
        String(image.inUseBy),
        age(image.createdAt, Date.now()),
      ]),
    ),
  );
  if (images.length === 0)
    context.out.note('no images; `sandlot image pull NAME` gets one, `create` does so by itself');
}
