/** `sandlot image import`: an archive, a folder with an OCI layout, or standard input. */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import { isImageError } from '../exit-code.js';
import type { OutputOptions } from '../grammar/binder.js';
import { followImage } from './image-progress.js';

/** The action. */
export async function run(
  context: CliContext,
  [file, name]: [string, string],
  options: OutputOptions,
): Promise<void> {
  const client = await context.client();
  const image = await followImage(context, name, await open()).catch(async (error: unknown) => {
    throw await withFile(error, file);
  });
  if (options.output === 'json') context.out.json(image);
  else context.out.line(`${image.reference}  ${image.digest}`);

  async function open() {
    if (file === '-') return client.images.import(name, context.stdin as AsyncIterable<Uint8Array>);
    const found = await stat(file).catch((cause: unknown) => {
      throw new CliError(`${file} cannot be read`, {
        cause,
        hint: 'Check the path; - stands for standard input.',
      });
    });
    if (found.isDirectory()) return client.images.importDirectory(name, file);
    const archive = createReadStream(file, { highWaterMark: 256 * 1024 });
    return client.images.import(name, archive, { contentLength: found.isFile() ? found.size : undefined });
  }
}

/** What is wrong with the archive is said of the file; a wrong name or a server that is gone is not its fault. */
async function withFile(error: unknown, file: string): Promise<unknown> {
  const { code, message, hint } = error as Error & { code?: string; hint?: string };
  if (!(await isImageError(error)) || code === 'invalid-reference' || message.includes(file)) return error;
  const { SandlotError } = await import('@sandlot/sdk');
  return new SandlotError(`${file === '-' ? 'standard input' : file}: ${message}`, {
    code,
    hint,
    cause: error,
  });
}
