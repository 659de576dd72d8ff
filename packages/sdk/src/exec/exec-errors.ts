/** Turns a failure of the exec stream into an error of the SDK. */
import { Code, ConnectError } from '@connectrpc/connect';
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
import { connectionCodeOf, connectionText } from '../http/connection-codes.js';

/** The matching {@link SandlotError}. */
export function fromConnectError(what: string, cause: unknown, signal?: AbortSignal): SandlotError {
  if (cause instanceof SandlotError) return cause;
  if (signal?.aborted) return new AbortedError(`${what} was cancelled`, { cause: signal.reason });
  // What the socket says goes before what the library makes of it: some losses are `internal` there.
  const socketCode = connectionCodeOf(cause);
  if (socketCode !== undefined) {
    return new ConnectionError(`${what}: ${connectionText(socketCode, cause)}`, { code: socketCode, cause });
  }
  const error = ConnectError.from(cause);
  const text = `${what}: ${error.rawMessage}`;
  const fields = { code: Code[error.code]?.toUpperCase() ?? 'UNKNOWN', cause };
  switch (error.code) {
    case Code.Unauthenticated:
      return new AuthenticationError(text, { ...fields, status: 401 });
    case Code.PermissionDenied:
      return new PermissionError(text, { ...fields, status: 403 });
    case Code.NotFound:
      return new NotFoundError(text, { ...fields, status: 404 });
    case Code.InvalidArgument:
    case Code.OutOfRange:
      return new ValidationError(text, { ...fields, status: 400 }, []);
    case Code.FailedPrecondition:
    case Code.AlreadyExists:
      return new ConflictError(text, { ...fields, status: 409 });
    case Code.ResourceExhausted:
      return new RateLimitError(text, { ...fields, status: 429 });
    case Code.Unimplemented:
      return new NotBuiltError(text, { ...fields, status: 501 });
    case Code.DeadlineExceeded:
      return new DeadlineError(text, fields);
    case Code.Unavailable:
    case Code.Aborted:
    case Code.Canceled:
      return new ConnectionError(text, fields);
    default:
      return new ServerError(text, fields);
  }
}

/** True where the stream of a session may be attached again. */
export function isStreamLoss(error: SandlotError): boolean {
  // A body that ends without Connect's last message (a proxy's doing) comes as `invalid_argument`.
  return error instanceof ConnectionError || error instanceof ServerError || error instanceof ValidationError;
}

/**
 * True when the gateway answered before the stream began, by a plain HTTP status: nothing was
 * started. A failure inside the stream carries the stream's own content type.
 */
export function wasRefused(error: SandlotError): boolean {
  if (!(error.cause instanceof ConnectError)) return false;
  const contentType = error.cause.metadata.get('content-type');
  return contentType !== null && !contentType.startsWith('application/connect+');
}
