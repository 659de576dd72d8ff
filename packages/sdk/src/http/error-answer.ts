/** Turns an HTTP answer that reports a failure into the matching {@link SandlotError}. Used by the API client and the gateway client. */
import {
  AuthenticationError,
  ConflictError,
  DeadlineError,
  FileNotFoundError,
  NotBuiltError,
  NotFoundError,
  PermissionError,
  RateLimitError,
  SandlotError,
  type SandlotErrorFields,
  ServerError,
  TooLargeError,
  ValidationError,
} from '../errors.js';
import { readLimited } from './read-limited.js';
import type { TransportResponse } from './transport.js';

/** Error bodies are short; more than this is not one of ours. */
const errorBodyMaxBytes = 64 * 1024;

/** Body of an error, as far as the server sent one. */
export interface ErrorBody {
  detail?: unknown;
  error?: unknown;
  code?: unknown;
  hint?: unknown;
  message?: unknown;
  request_id?: unknown;
  errors?: unknown;
}

/** Reads the answer and makes the error; never throws itself except for a broken connection. */
export async function errorFromAnswer(what: string, answer: TransportResponse): Promise<SandlotError> {
  const bytes = await readLimited(answer.body, errorBodyMaxBytes);
  const text = new TextDecoder().decode(bytes);
  let body: ErrorBody = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed !== null && typeof parsed === 'object') body = parsed as ErrorBody;
  } catch {
    // Not JSON: a proxy's page. Its beginning is still the best description there is.
  }
  return errorFromBody(what, answer.status, body, text, (name) => answer.header(name));
}

/** The pure part of {@link errorFromAnswer}. */
export function errorFromBody(
  what: string,
  status: number,
  body: ErrorBody,
  text: string,
  header: (name: string) => string | undefined,
): SandlotError {
  const fields: SandlotErrorFields = {
    status,
    code: stringOf(body.code) ?? identifierOf(body.error) ?? `HTTP_${status}`,
    requestId: stringOf(body.request_id) ?? header('x-request-id'),
    hint: stringOf(body.hint),
    retryAfterSeconds: retryAfter(header('retry-after')),
  };
  const problems = wrongFields(body);
  const detail =
    stringOf(body.detail) ??
    stringOf(body.message) ??
    stringOf(body.error) ??
    (problems.length > 0
      ? problems.map((problem) => `${problem.field}: ${problem.problem}`).join('; ')
      : undefined) ??
    (text.trim().slice(0, 300) || `${what} was answered with HTTP ${status}`);
  switch (status) {
    case 400:
    case 405:
    case 415:
    case 422:
      return new ValidationError(detail, fields, problems);
    case 401:
      return new AuthenticationError(detail, fields);
    case 403:
      return new PermissionError(detail, fields);
    case 404:
      return fields.code === 'ENOENT'
        ? new FileNotFoundError(detail, fields)
        : new NotFoundError(detail, fields);
    case 408:
      return new DeadlineError(detail, fields);
    case 409:
    case 410:
      return new ConflictError(detail, fields);
    case 413:
      return new TooLargeError(detail, fields);
    case 429:
      return new RateLimitError(detail, fields);
    case 501:
      return new NotBuiltError(detail, fields);
    default:
      return status >= 500 ? new ServerError(detail, fields) : new SandlotError(detail, fields);
  }
}

function stringOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The gateway puts its code under `error`; others put a sentence there. */
function identifierOf(value: unknown): string | undefined {
  return typeof value === 'string' && /^[A-Za-z][\w.-]*$/.test(value) ? value : undefined;
}

/** `errors: [{param, details}]`, or FastAPI's `detail: [{loc, msg}]`. */
function wrongFields(body: ErrorBody): { field: string; problem: string }[] {
  const list = Array.isArray(body.errors) ? body.errors : Array.isArray(body.detail) ? body.detail : [];
  return list.flatMap((item: Record<string, unknown>) => {
    const loc = Array.isArray(item?.['loc'])
      ? item['loc'].filter((part) => part !== 'body').join('.')
      : undefined;
    const field = stringOf(item?.['param']) ?? stringOf(item?.['field']) ?? loc;
    const problem = stringOf(item?.['details']) ?? stringOf(item?.['msg']) ?? stringOf(item?.['message']);
    return field === undefined && problem === undefined
      ? []
      : [{ field: field ?? '', problem: problem ?? 'is not valid' }];
  });
}

function retryAfter(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const seconds = Number(value);
  if (Number.isFinite(seconds)) return Math.max(0, seconds);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, (date - Date.now()) / 1000);
}
