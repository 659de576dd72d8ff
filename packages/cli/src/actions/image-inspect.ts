/** `sandlot image inspect`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { properties } from '../output/table.js';
import { bytes } from '../output/units.js';

/** The action. */
export async function run(context: CliContext, [name]: [string], options: OutputOptions): Promise<void> {
  const image = await (await context.client()).images.inspect(name);
  if (options.output === 'json') return context.out.json(image);
  const { config, platform } = image;
  context.out.line(
    properties([
      ['name', image.reference],
      ['digest', image.digest],
      ['platform', `${platform.os}/${platform.architecture}`],
      ['created', image.createdAt],
      ['layers', `${image.layers.length} (${bytes(image.contentBytes)})`],
      ['root file system', image.rootfsBytes === 0 ? 'not built' : bytes(image.rootfsBytes)],
      ['in use by', image.inUseBy],
      ['user', config.user || 'root'],
      ['working directory', config.workingDir || '/'],
      ['entrypoint', config.entrypoint.join(' ')],
      ['command', config.cmd.join(' ')],
      ['ports', config.exposedPorts.join(', ')],
      ...config.env.map((one) => ['environment', one] as const),
      ...Object.entries(image.labels).map(([key, value]) => ['label', `${key}=${value}`] as const),
    ]),
  );
}
