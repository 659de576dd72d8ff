/** `sandlot download`: a file or a folder, into a file, a folder, or standard output. */
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import path from 'node:path';
import type { Sandbox, SandboxFileStat } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { startProgress } from '../output/progress.js';
import { bytes } from '../output/units.js';
import { checkLocalFolder, checkRemotePath, downloadFailure, makeLocalFolder } from './path-advice.js';

/** The action. */
export async function run(
  context: CliContext,
  [id, remote, local]: [string, string, string],
  options: OutputOptions,
): Promise<void> {
  checkRemotePath(remote);
  const client = await context.client();
  const sandbox = client.sandboxes.handle(await client.sandboxes.resolveId(id));
  const { files } = sandbox;
  const source = await resolve(sandbox, remote).catch(async (error: unknown) => {
    throw await downloadFailure(error, remote);
  });
  const isFolder = source.kind === 'directory';
  if (local === '-') {
    const stream = isFolder ? await files.downloadTar(remote) : await files.downloadStream(remote);
    for await (const chunk of stream) if (!context.stdout.write(chunk)) await once(context.stdout, 'drain');
    return;
  }
  if (isFolder) await checkLocalFolder(local, remote);
  const progress = await startProgress(context.out, `downloading ${remote}`);
  let size = 0;
  const transfer = {
    onProgress(done: number) {
      size = done;
      progress.update(done, source.kind === 'file' ? source.size : 0);
    },
    onSkip: (name: string, reason: string) => context.out.note(`left out: ${name} (${reason})`),
  };
  let target = local;
  try {
    if (isFolder) await files.downloadDirectory(remote, local, transfer);
    else {
      // As cp: into a folder that exists, or that the trailing slash asks for.
      await makeLocalFolder(local.endsWith('/') ? local : path.dirname(local));
      const isInto = local.endsWith('/') || (await stat(local).catch(() => undefined))?.isDirectory();
      if (isInto) target = path.join(local, path.posix.basename(remote));
      size = await files.downloadFile(remote, target, transfer);
    }
  } finally {
    progress.stop();
  }
  if (options.output === 'json') context.out.json({ path: target, size });
  else context.out.line(`${target}  ${bytes(size)}`);
}

/** What the path is, at the end of its links. */
async function resolve(sandbox: Sandbox, remote: string): Promise<SandboxFileStat> {
  const found = await sandbox.files.stat(remote);
  if (found.kind !== 'symlink') return found;
  // A trailing slash-dot makes the kernel follow the link, if it leads to a folder.
  return sandbox.files.stat(`${remote}/.`).catch(() => ({ ...found, kind: 'file' as const, size: 0 }));
}
