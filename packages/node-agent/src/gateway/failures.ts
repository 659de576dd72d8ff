/** What a gateway call answers when it fails: one place for statuses and bodies. The table is in prime-wire 3.1. */
import type { ServerResponse } from 'node:http';
import { GuestPausedError, GuestRebootedError, GuestUnreachableError } from '../guest/channel.js';
import { GuestCallError } from '../guest/guest-client.js';

/** A refusal with its HTTP status; `detail` is for a person, `error` for a program. */
export class GatewayError extends Error {
  override name = 'GatewayError';
  constructor(
    readonly status: number,
    readonly error: string,
    readonly detail: string,
    options?: ErrorOptions,
  ) {
    super(detail, options);
  }
}

const statusOfErrno = new Map([
  ['ENOENT', 404],
  ['EISDIR', 400],
  ['ENOTDIR', 400],
  ['EINVAL', 400],
  ['ENAMETOOLONG', 400],
  ['ELOOP', 400],
  ['EACCES', 403],
  ['EROFS', 403],
  ['EPERM', 403],
  ['ENOSPC', 507],
  ['EDQUOT', 507],
  ['EFBIG', 413],
  ['EBUSY', 409],
]);

/** Any error as a gateway answer. */
export function asGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  if (error instanceof GuestCallError) {
    const status = statusOfErrno.get(error.code) ?? Math.min(error.status, 500);
    return new GatewayError(status, error.code, error.message, { cause: error });
  }
  if (error instanceof GuestPausedError)
    return new GatewayError(409, 'sandbox_paused', error.message, { cause: error });
  if (error instanceof GuestRebootedError)
    return new GatewayError(503, 'sandbox_rebooted', error.message, { cause: error });
  if (error instanceof GuestUnreachableError) {
    const detail = `The sandbox did not answer: ${error.message}. Try again; if it goes on, look at its error-context.`;
    return new GatewayError(503, 'guest_unreachable', detail, { cause: error });
  }
  return new GatewayError(500, 'internal', error instanceof Error ? error.message : String(error), {
    cause: error,
  });
}

/** Sends a failure, or cuts the connection when an answer has already begun. */
export function sendFailure(response: ServerResponse, error: unknown): GatewayError {
  const failure = asGatewayError(error);
  if (response.headersSent) response.destroy();
  else {
    response.writeHead(failure.status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: failure.error, detail: failure.detail }));
  }
  return failure;
}
