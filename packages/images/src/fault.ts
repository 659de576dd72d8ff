/**
 * Turns what the system reports (errno, aborts) into the `ImageError` a user can act on. Called wherever the
 * store, the registry client or the build touches a file, a process or a socket.
 */
import { ImageError } from './store.js';

/** The errno name of a Node error (`ENOSPC`), looked up through `cause` as well; undefined if there is none. */
export function errnoOf(error: unknown): string | undefined {
  let current: unknown = error;
  for (let depth = 0; depth < 5 && current instanceof Error; depth++) {
    const code = (current as NodeJS.ErrnoException).code;
    if (typeof code === 'string') return code;
    current = current.cause;
  }
  return undefined;
}

/** True if the error is the end of an `AbortSignal`, not a failure of its own. */
export function isAbort(error: unknown): boolean {
  return error instanceof Error && (error.name === 'AbortError' || errnoOf(error) === 'ABORT_ERR');
}

/** The error itself if it is an ImageError already, else one with a fitting code. `doing` begins the message. */
export function toImageError(error: unknown, doing: string): ImageError {
  if (error instanceof ImageError) return error;
  const text = error instanceof Error ? error.message : String(error);
  if (isAbort(error)) return new ImageError('aborted', `${doing}: cancelled`, { cause: error });
  const errno = errnoOf(error);
  if (errno === 'ENOSPC' || errno === 'EDQUOT' || errno === 'EFBIG') {
    return new ImageError(
      'no-space',
      `${doing}: the disk of the image store is full (${errno}); free some space or run \`image prune\`, then try again`,
      { cause: error },
    );
  }
  return new ImageError('build-failed', `${doing}: ${text}`, { cause: error });
}

/** Throws `aborted` if the signal has fired. */
export function throwIfAborted(signal: AbortSignal | undefined, doing: string): void {
  if (signal?.aborted) throw new ImageError('aborted', `${doing}: cancelled`, { cause: signal.reason });
}
