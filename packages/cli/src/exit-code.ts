/**
 * The exit code of a failed request: that of the server's table of errors, else of its HTTP status.
 * Used by `cli.ts`, and by the actions that go on past a failure (`rm`, `image rm`). Told in docs/errors.md.
 */
import { exitCodes } from './cli-error.js';

/** The code for an error of the SDK; 1 for whatever the server has not refused. */
export async function exitCodeOf(error: unknown): Promise<number> {
  const { code, status } = (error ?? {}) as { code?: unknown; status?: unknown };
  if (typeof code !== 'string') return exitCodes.failed;
  const { errorTable, imageErrorExitCodes, isErrorCode, isImageErrorCode } = await import(
    '@sandlot/sdk/error-table'
  );
  if (isErrorCode(code)) return errorTable[code].exitCode;
  if (typeof status !== 'number')
    return isImageErrorCode(code) ? imageErrorExitCodes[code] : exitCodes.failed;
  // Codes of their own, such as the gateway's about files (`EISDIR`): as a row of the same status.
  const row = Object.values(errorTable).find((known) => known.status === status);
  return row?.exitCode ?? exitCodes.failed;
}

/** Whether an error is the image store's word about an image, not about the request or the connection. */
export async function isImageError(error: unknown): Promise<boolean> {
  const { code, status } = (error ?? {}) as { code?: unknown; status?: unknown };
  if (typeof code !== 'string' || status !== undefined) return false;
  return (await import('@sandlot/sdk/error-table')).isImageErrorCode(code);
}
