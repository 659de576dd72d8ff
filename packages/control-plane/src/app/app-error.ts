/** Errors of operations: a code of the one table and a text for the caller. `http/` makes the answer of it. */
import { type ErrorCode, errorTable, type SchemaIssue } from '@sandlot/protocol';

/** An operation that cannot be done, and why. */
export class AppError extends Error {
  override readonly name = 'AppError';

  constructor(
    readonly code: ErrorCode,
    detail: string,
    options: { issues?: readonly SchemaIssue[]; cause?: unknown } = {},
  ) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.issues = options.issues ?? [];
  }

  /** Fields that are wrong. */
  readonly issues: readonly SchemaIssue[];

  /** HTTP status. */
  get status(): number {
    return errorTable[this.code].status;
  }
}

/** A request whose fields are wrong; the detail names them all. */
export function invalidRequest(issues: readonly SchemaIssue[]): AppError {
  const detail = issues
    .map(({ param, details }) => (param === '' ? details : `${param}: ${details}`))
    .join(' ');
  return new AppError('INVALID_REQUEST', `The request is not valid. ${detail}`, { issues });
}

/** No sandbox of that id for this caller: it does not exist, is somebody else's, or has been deleted. */
export function sandboxNotFound(id: string): AppError {
  return new AppError(
    'SANDBOX_NOT_FOUND',
    `There is no sandbox ${id} for this key. Check the id with \`sandlot ls\`.`,
  );
}

/** A feature of the API that this server does not have yet. */
export function notImplemented(feature: string): AppError {
  return new AppError('NOT_IMPLEMENTED', `This server does not have ${feature} yet: do without it for now.`);
}
