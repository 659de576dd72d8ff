/**
 * The exit code of a failed request: that of the server's table of errors, else of its HTTP status.
 * Used by `cli.ts`, and by the actions that go on past a failure (`rm`, `image rm`). Told in docs/errors.md.
 */
import { exitCodes } from './cli-error.js';

/** What the table has for the same status; the gateway's answers about files have codes of their own (`EISDIR`). */
const codeOfStatus: Readonly<Record<number, number>> = {
  400: 64,
  401: 77,
  403: 77,
  404: 66,
  405: 64,
  409: 73,
  413: 64,
  415: 64,
  422: 64,
  429: 75,
  500: 70,
  501: 69,
  502: 69,
  503: 75,
  507: 75,
};

/** Codes of the image store, which come when the answer has begun already; `ImageErrorCode` of `images`. */
const codeOfImageError: Readonly<Record<string, number>> = {
  'invalid-reference': 64,
  'not-found': 66,
  unauthorized: 77,
  unreachable: 69,
  'rate-limited': 75,
  'insecure-registry': 77,
  'wrong-platform': 65,
  'digest-mismatch': 65,
  truncated: 65,
  'unknown-compression': 65,
  'unsupported-media-type': 65,
  'invalid-manifest': 65,
  'invalid-layer': 65,
  'too-large': 65,
  'no-space': 75,
  'in-use': 73,
  'build-failed': 70,
};

/** The code for an error of the SDK; 1 for whatever the server has not refused. */
export async function exitCodeOf(error: unknown): Promise<number> {
  const { code, status } = (error ?? {}) as { code?: unknown; status?: unknown };
  if (typeof code !== 'string') return exitCodes.failed;
  const { errorTable, isErrorCode } = await import('@sandlot/sdk/error-table');
  if (isErrorCode(code)) return errorTable[code].exitCode;
  if (typeof status === 'number') return codeOfStatus[status] ?? exitCodes.failed;
  return codeOfImageError[code] ?? exitCodes.failed;
}

/** Whether an error is the image store's word about an image, not about the request or the connection. */
export function isImageError(error: unknown): boolean {
  const { code, status } = (error ?? {}) as { code?: unknown; status?: unknown };
  return typeof code === 'string' && status === undefined && code in codeOfImageError;
}
