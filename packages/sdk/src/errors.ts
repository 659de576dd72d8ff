/**
 * The errors of the SDK: one root class, a subclass for each thing a caller can do about it. Made
 * from HTTP answers in `http/error-answer.ts`, from exec streams in `exec/exec-errors.ts`. Branch
 * on the class or on `code`, never on the text of `message`.
 */

/** What is known about a failure beside its text. */
export interface SandlotErrorFields {
  /** HTTP status, when the server answered. */
  status?: number | undefined;
  /** Stable machine-readable code of the server's error table, or one of the SDK's own. */
  code?: string | undefined;
  /** To quote when asking the person who runs the server; found in its log. */
  requestId?: string | undefined;
  /** What led to it. */
  cause?: unknown;
  /** What to do about it. */
  hint?: string | undefined;
  /** Seconds after which the server wants to be asked again. */
  retryAfterSeconds?: number | undefined;
}

/** Root of everything that the SDK throws. */
export class SandlotError extends Error {
  /** HTTP status, when the server answered. */
  readonly status: number | undefined;
  /** Stable machine-readable code. */
  readonly code: string;
  /** Id of the failed request, when the server answered. */
  readonly requestId: string | undefined;
  /** What to do about it. */
  readonly hint: string | undefined;
  /** Seconds to wait before asking again, when the server said so. */
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, fields: SandlotErrorFields = {}) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = new.target.name;
    this.status = fields.status;
    this.code = fields.code ?? 'UNKNOWN';
    this.requestId = fields.requestId;
    this.hint = fields.hint;
    this.retryAfterSeconds = fields.retryAfterSeconds;
  }
}

/** No connection, or it broke before the answer was complete. */
export class ConnectionError extends SandlotError {}
/** No answer, or no progress of a transfer, in the time allowed. */
export class DeadlineError extends SandlotError {}
/** The caller's own AbortSignal fired; `cause` is its reason. `name` is `AbortError`. */
export class AbortedError extends SandlotError {
  constructor(message: string, fields: SandlotErrorFields = {}) {
    super(message, { code: 'ABORTED', ...fields });
    this.name = 'AbortError';
  }
}
/** 401: no API key, or one that the server does not know. */
export class AuthenticationError extends SandlotError {}
/** 403: the key is known but may not do this. */
export class PermissionError extends SandlotError {}
/** 404: no such sandbox, image, user, …, or somebody else's. */
export class NotFoundError extends SandlotError {}
/** There is no such file or folder in the sandbox. */
export class FileNotFoundError extends NotFoundError {}
/** 409: the thing is in a state that forbids this. */
export class ConflictError extends SandlotError {}
/** 400, 405, 415 or 422: the request is wrong; `problems` names each field, where the server did. */
export class ValidationError extends SandlotError {
  constructor(
    message: string,
    fields: SandlotErrorFields,
    /** Each wrong field and what is wrong with it. */
    readonly problems: { field: string; problem: string }[],
  ) {
    super(message, fields);
  }
}
/** 413: too large for this call. */
export class TooLargeError extends SandlotError {}
/** 429: too many requests; `retryAfterSeconds` says when to come back. */
export class RateLimitError extends SandlotError {}
/** 501: this server does not have it. */
export class NotBuiltError extends SandlotError {}
/** 5xx: the server failed, or cannot serve now. */
export class ServerError extends SandlotError {}
/** A checkpoint could not be made, or is no more. Its sandbox runs on. */
export class CheckpointFailedError extends SandlotError {}
/** The sandbox does not run (any more); `errorType` says why. */
export class SandboxNotRunningError extends SandlotError {
  constructor(
    message: string,
    fields: SandlotErrorFields,
    /** State on the wire, such as `TERMINATED`. */
    readonly sandboxStatus: string | undefined,
    /** Why it ended, such as `OOM_KILLED` or `TIMEOUT`. */
    readonly errorType: string | undefined,
  ) {
    super(message, fields);
  }
}
