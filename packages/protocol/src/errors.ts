/**
 * The one table of API errors. A code is chosen by who must act next; status, SDK class, exit code
 * and the page `docs/errors.md` derive from it. Raised by the control plane, read by SDK and CLI.
 */
import { type Static, Type } from '@sinclair/typebox';

/** Who must act next: the caller, the owner of the account or server, time, or we. */
export type ErrorActor = 'caller' | 'admin' | 'wait' | 'sandlot';

/** One row of the table. */
export interface ErrorRow {
  /** HTTP status. */
  status: number;
  actor: ErrorActor;
  /** The same request may succeed later without a change. */
  retryable: boolean;
  /** Exit code of the CLI (sysexits.h where one fits). */
  exitCode: number;
  /** What it means. */
  meaning: string;
  /** What to do. */
  remedy: string;
}

const rows = {
  INVALID_REQUEST: {
    status: 422,
    actor: 'caller',
    retryable: false,
    exitCode: 64,
    meaning: 'A field is missing, malformed or out of range; `errors` names it.',
    remedy: 'Correct the field.',
  },
  MALFORMED_BODY: {
    status: 400,
    actor: 'caller',
    retryable: false,
    exitCode: 64,
    meaning: 'The body is not JSON.',
    remedy: 'Send a JSON object.',
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    actor: 'caller',
    retryable: false,
    exitCode: 64,
    meaning: 'The body has a content type that this route does not read.',
    remedy: 'Send application/json.',
  },
  BODY_TOO_LARGE: {
    status: 413,
    actor: 'caller',
    retryable: false,
    exitCode: 64,
    meaning: 'The body is larger than the route accepts.',
    remedy: 'Send less, or upload it as a file.',
  },
  UNAUTHENTICATED: {
    status: 401,
    actor: 'caller',
    retryable: false,
    exitCode: 77,
    meaning: 'There is no key, or it is unknown or revoked.',
    remedy: 'Send `Authorization: Bearer <key>`; `sandlot key create` makes one.',
  },
  FORBIDDEN: {
    status: 403,
    actor: 'admin',
    retryable: false,
    exitCode: 77,
    meaning: 'The key is good, but its user may not do this.',
    remedy: 'Ask an admin, or use an admin key.',
  },
  SANDBOX_NOT_FOUND: {
    status: 404,
    actor: 'caller',
    retryable: false,
    exitCode: 66,
    meaning: 'No sandbox of that id exists for this key, or it has been deleted.',
    remedy: 'Check the id with `sandlot ls`.',
  },
  NOT_FOUND: {
    status: 404,
    actor: 'caller',
    retryable: false,
    exitCode: 66,
    meaning: 'The thing that is named does not exist for this key.',
    remedy: 'Check the name or the path.',
  },
  METHOD_NOT_ALLOWED: {
    status: 405,
    actor: 'caller',
    retryable: false,
    exitCode: 64,
    meaning: 'The path exists, but not with this method.',
    remedy: 'See the OpenAPI document.',
  },
  CONFLICT: {
    status: 409,
    actor: 'caller',
    retryable: false,
    exitCode: 73,
    meaning: 'The state of the thing does not allow this: name taken, in use, or ended.',
    remedy: 'Look at its state, then decide.',
  },
  IDEMPOTENCY_MISMATCH: {
    status: 409,
    actor: 'caller',
    retryable: false,
    exitCode: 64,
    meaning: 'The idempotency key has been used with another body.',
    remedy: 'Use a new key for a new request.',
  },
  NOT_IMPLEMENTED: {
    status: 501,
    actor: 'sandlot',
    retryable: false,
    exitCode: 69,
    meaning: 'The feature is part of the API, but this server does not have it yet.',
    remedy: 'Do without it, or use a newer version.',
  },
  NODE_UNAVAILABLE: {
    status: 503,
    actor: 'wait',
    retryable: true,
    exitCode: 75,
    meaning: 'The node that is needed cannot be reached at the moment.',
    remedy: 'Try again; if it stays so, `sandlot status` and the node agent’s log say why.',
  },
  NODE_ERROR: {
    status: 502,
    actor: 'admin',
    retryable: true,
    exitCode: 69,
    meaning: 'The node answered with an error of its own.',
    remedy: 'Read the detail; the node agent’s log has more under the request id.',
  },
  STORAGE_FULL: {
    status: 507,
    actor: 'admin',
    retryable: true,
    exitCode: 75,
    meaning:
      'The disk of the server is full: nothing can be recorded, so nothing can be changed. Reading works.',
    remedy: 'Make room on the disk of the data folder (`sandlot status` names it), then try again.',
  },
  SHUTTING_DOWN: {
    status: 503,
    actor: 'wait',
    retryable: true,
    exitCode: 75,
    meaning: 'The server is stopping.',
    remedy: 'Try again in a moment.',
  },
  INTERNAL: {
    status: 500,
    actor: 'sandlot',
    retryable: false,
    exitCode: 70,
    meaning: 'A fault of ours.',
    remedy: 'Report it with the request id; the control plane’s log has the cause.',
  },
} as const satisfies Record<string, ErrorRow>;

/** Code of an API error. */
export type ErrorCode = keyof typeof rows;

/** The table of errors. */
export const errorTable: Readonly<Record<ErrorCode, ErrorRow>> = rows;

/** True for a string that is a code of the table. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(errorTable, value);
}

/** Body of every error answer of the API; the gateway has forms of its own. `detail` says what failed, why, and what to do. */
export const ErrorBody = Type.Object({
  detail: Type.String(),
  code: Type.String(),
  errors: Type.Array(Type.Object({ param: Type.String(), details: Type.String() })),
  request_id: Type.String(),
});
/** Body of every error answer of the API. */
export type ErrorBody = Static<typeof ErrorBody>;
