/** Turns a failure of the exec service into an error of the SDK. */
import {
  AbortedError,
  AuthenticationError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  NotBuiltError,
  NotFoundError,
  PermissionError,
  RateLimitError,
  SandlotError,
  ServerError,
  ValidationError,
} from '../errors.js';
import { ServiceError } from './service-error.js';

/** The matching {@link SandlotError}. `signal` is the caller's. */
export function toExecError(what: string, cause: unknown, signal?: AbortSignal): SandlotError {
  if (signal?.aborted) return new AbortedError(`${what} was cancelled`, { cause: signal.reason });
  if (cause instanceof AbortedError)
    return new ConnectionError(`${what}: the stream was closed`, { code: 'CLOSED', cause });
  if (cause instanceof SandlotError) return cause;
  if (!(cause instanceof ServiceError)) {
    const text = cause instanceof Error ? cause.message : String(cause);
    return new ServerError(`${what}: ${text}`, { code: 'BAD_ANSWER', cause });
  }
  const text = `${what}: ${cause.message}`;
  const fields = { code: cause.code.toUpperCase(), cause };
  switch (cause.code) {
    case 'unauthenticated':
      return new AuthenticationError(text, { ...fields, status: 401 });
    case 'permission_denied':
      return new PermissionError(text, { ...fields, status: 403 });
    case 'not_found':
      return new NotFoundError(text, { ...fields, status: 404 });
    case 'invalid_argument':
    case 'out_of_range':
      return new ValidationError(text, { ...fields, status: 400 }, []);
    case 'failed_precondition':
    case 'already_exists':
      return new ConflictError(text, { ...fields, status: 409 });
    case 'resource_exhausted':
      return new RateLimitError(text, { ...fields, status: 429 });
    case 'unimplemented':
      return new NotBuiltError(text, { ...fields, status: 501 });
    case 'deadline_exceeded':
      return new DeadlineError(text, fields);
    case 'unavailable':
    case 'aborted':
    case 'canceled':
      return new ConnectionError(text, fields);
    default:
      return new ServerError(text, fields);
  }
}

/** True where the stream of a session may be attached again; what cannot be read would be as unreadable then. */
export function isStreamLoss(error: SandlotError): boolean {
  if (error.code === 'BAD_ANSWER') return false;
  return error instanceof ConnectionError || error instanceof ServerError;
}

/** True when the gateway answered before the stream began, by a plain HTTP status: nothing was started. */
export function wasRefused(error: SandlotError): boolean {
  return error.cause instanceof ServiceError && error.cause.isRefusal;
}
