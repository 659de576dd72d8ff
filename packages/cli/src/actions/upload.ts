/** `sandlot upload`: a file, a folder, or standard input. */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import type { UploadResult } from '@sandlot/sdk';
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { startProgress } from '../output/progress.js';
import { bytes } from '../output/units.js';
import { checkRemotePath, uploadFailure } from './path-advice.js';

/** The action. */
export async function run(
  context: CliContext,
  [id, local, remote]: [string, string, string],
  options: OutputOptions,
): Promise<void> {
  checkRemotePath(remote);
  const source = local === '-' ? undefined : await statLocal(local);
  const client = await context.client();
  const { files } = client.sandboxes.handle(await client.sandboxes.resolveId(id));
  const target = remote.endsWith('/') && !source?.isDirectory() ? remote + baseName(local, remote) : remote;
  const progress = await startProgress(context.out, `uploading ${local}`);
  const transfer = {
    onProgress: (done: number) => progress.update(done, source?.isFile() ? source.size : 0),
    onSkip: (name: string, reason: string) => context.out.note(`left out: ${name} ${reason}`),
  };
  let result: UploadResult;
  try {
    if (!source)
      result = await files.uploadStream(context.stdin as AsyncIterable<Uint8Array>, target, transfer);
    else if (source.isDirectory()) result = await files.uploadDirectory(local, target, transfer);
    else result = await files.uploadFile(local, target, transfer);
  } catch (error) {
    const kind = source === undefined ? 'stream' : source.isDirectory() ? 'folder' : 'file';
    throw await uploadFailure(error, { target, source: kind });
  } finally {
    progress.stop();
  }
  if (options.output === 'json') context.out.json({ path: result.path, size: result.size });
  else context.out.line(`${result.path}  ${bytes(result.size)}`);
}

async function statLocal(local: string) {
  try {
    return await stat(local);
  } catch (cause) {
    throw new CliError(`${local} cannot be read`, {
      cause,
      hint: 'Check the path; - stands for standard input.',
    });
  }
}

function baseName(local: string, remote: string): string {
  if (local === '-') {
    throw new CliError(`${remote} names a folder, but standard input has no name`, {
      hint: 'Give the full path of the file in the sandbox.',
      exitCode: 2,
    });
  }
  return path.basename(local);
}
