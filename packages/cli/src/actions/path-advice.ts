/** What to do about a wrong path of `upload` or `download`, here or in the sandbox. */
import { mkdir, stat } from 'node:fs/promises';
import { CliError, exitCodes } from '../cli-error.js';

/** Refuses what no path of a sandbox can be, before anything is read or asked for. */
export function checkRemotePath(remote: string): void {
  if (remote.startsWith('/')) return;
  throw new CliError(`"${remote}" is not an absolute path of the sandbox`, {
    hint: `A path in the sandbox begins with /, such as /root/${remote.replace(/^(~|\.)?\/+/, '') || 'file'}.`,
    exitCode: exitCodes.usage,
  });
}

/** The failure of an upload to `target`, with what to do where the path is the reason. */
export async function uploadFailure(
  error: unknown,
  { target, source }: { target: string; source: 'file' | 'folder' | 'stream' },
): Promise<unknown> {
  const { code } = error as { code?: unknown };
  if (code === 'EISDIR') {
    const hint = {
      file: `${target} is a folder: end it in / to put the file into it (${target}/), or choose another name.`,
      folder: `A folder is in the way of a file below ${target}: remove it, or choose another place.`,
      stream: `${target} is a folder: give the full path of the file.`,
    };
    return advised(error, target, hint[source]);
  }
  if (code === 'ENOTDIR' || code === 'EEXIST') {
    const hint =
      source === 'folder'
        ? `A file is in the way: name a folder for the content (a missing one is made), or remove the file.`
        : `A part of ${target} is a file, not a folder: choose another path, or remove that file.`;
    return advised(error, target, hint);
  }
  return error;
}

/** The failure of a download, with what to do where the path in the sandbox is the reason. */
export async function downloadFailure(error: unknown, remote: string): Promise<unknown> {
  return (error as { code?: unknown }).code === 'ENOTDIR'
    ? advised(
        error,
        remote,
        `A part of ${remote} is a file, not a folder; \`sandlot run ID -- ls -la FOLDER\` shows what there is.`,
      )
    : error;
}

/** Makes a local folder for what is downloaded. */
export async function makeLocalFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
  } catch (cause) {
    throw new CliError(`the folder ${folder} cannot be made`, {
      cause,
      hint: 'Choose another place, or remove what is in the way.',
    });
  }
}

/** Refuses a local file where a folder's content is to go. */
export async function checkLocalFolder(local: string, remote: string): Promise<void> {
  const found = await stat(local).catch(() => undefined);
  if (found === undefined || found.isDirectory()) return;
  throw new CliError(`${local} is a file, but ${remote} is a folder`, {
    hint: 'Name a folder for its content (a missing one is made), or - for a tar stream.',
  });
}

/** The same error with a hint, and with the path where its text does not have it. */
async function advised(error: unknown, remote: string, hint: string): Promise<Error> {
  const { SandlotError } = await import('@sandlot/sdk');
  const { message, status, code, requestId } = error as InstanceType<typeof SandlotError>;
  const text = message.includes(remote) ? message : `${remote}: ${message}`;
  return new SandlotError(text, { status, code, requestId, hint, cause: error });
}
