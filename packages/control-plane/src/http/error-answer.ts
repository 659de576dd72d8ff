/** Makes the answer of any error: status and body from the one table, the cause into the log only. */
import type { ErrorBody, ErrorCode } from '@sandlot/protocol';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError } from '../app/app-error.js';

/** Fastify's own errors, by their code. */
const fastifyCodes: Readonly<Record<string, [ErrorCode, string]>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: ['BODY_TOO_LARGE', 'The body is larger than this route accepts.'],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    'UNSUPPORTED_MEDIA_TYPE',
    'The body must be JSON: send Content-Type: application/json.',
  ],
  FST_ERR_CTP_INVALID_JSON_BODY: ['MALFORMED_BODY', 'The body is not valid JSON.'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: [
    'MALFORMED_BODY',
    'The body is shorter or longer than its Content-Length says.',
  ],
};

/** What SQLite and the system say when there is no room. */
const noRoomCodes = new Set(['SQLITE_FULL', 'SQLITE_IOERR_SHMSIZE', 'ENOSPC', 'EDQUOT']);

/** Adds the handlers for errors and for unknown paths. */
export function handleErrors(server: FastifyInstance, isClosing: () => boolean): void {
  server.setErrorHandler((error, request, reply) => {
    sendError(request, reply, toAppError(error, request, isClosing()), error);
  });
  server.setNotFoundHandler((request, reply) => {
    sendError(request, reply, unknownRoute(server, request), undefined);
  });
}

/** Body of an error answer. */
export function errorBody(error: AppError, requestId: string): ErrorBody {
  const { message: detail, code, issues } = error;
  return { detail, code, errors: [...issues], request_id: requestId };
}

function sendError(request: FastifyRequest, reply: FastifyReply, error: AppError, cause: unknown): void {
  if (error.status >= 500) request.log.error({ err: cause, code: error.code }, 'request failed');
  else request.log.info({ code: error.code, detail: error.message, err: error.cause }, 'request refused');
  // A stream that has begun cannot become an error answer any more: cutting it says so.
  if (reply.raw.headersSent) {
    reply.raw.destroy();
    return;
  }
  void reply.status(error.status).send(errorBody(error, request.id));
}

function toAppError(error: unknown, request: FastifyRequest, closing: boolean): AppError {
  if (error instanceof AppError) return error;
  const { code = '' } = error as { code?: string };
  const known = fastifyCodes[code];
  if (known !== undefined) return new AppError(known[0], known[1]);
  if (noRoomCodes.has(code))
    return new AppError(
      'STORAGE_FULL',
      'The disk of the server is full, so the change cannot be recorded and was not made. Its owner must make room there; then try again.',
      { cause: error },
    );
  if (closing)
    return new AppError('SHUTTING_DOWN', 'The server is stopping. Try again in a moment.', { cause: error });
  const detail = `The server failed at ${request.method} ${request.routeOptions.url ?? 'this path'}. Report it with the request id ${request.id}.`;
  return new AppError('INTERNAL', detail, { cause: error });
}

const methods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'] as const;

function unknownRoute(server: FastifyInstance, request: FastifyRequest): AppError {
  const path = request.url.split('?')[0] ?? '';
  const others = methods.filter((method) => server.findRoute({ method, url: path }) !== null);
  if (others.length > 0)
    return new AppError(
      'METHOD_NOT_ALLOWED',
      `${path} does not know ${request.method}, only ${others.join(', ')}.`,
    );
  return new AppError(
    'NOT_FOUND',
    `There is nothing at ${request.method} ${path}. The API is below /api/v1; its document is /api/v1/sandbox/openapi.json.`,
  );
}
