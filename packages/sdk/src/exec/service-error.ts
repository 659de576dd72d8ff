/** A failure as the exec service reports it: one of Connect's codes and a text. Becomes an error of the SDK in `exec-errors.ts`. */

/** Codes for an answer without one of its own (connectrpc.com/docs/protocol, "HTTP to Error Code"). */
const codeOfStatus: Readonly<Record<number, string>> = {
  400: 'internal',
  401: 'unauthenticated',
  403: 'permission_denied',
  404: 'unimplemented',
  429: 'unavailable',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
};

const knownCodes: ReadonlySet<string> = new Set([
  'canceled',
  'unknown',
  'invalid_argument',
  'deadline_exceeded',
  'not_found',
  'already_exists',
  'permission_denied',
  'resource_exhausted',
  'failed_precondition',
  'aborted',
  'out_of_range',
  'unimplemented',
  'internal',
  'unavailable',
  'data_loss',
  'unauthenticated',
]);

/** The service, or the gateway before it, reports a failure. */
export class ServiceError extends Error {
  override name = 'ServiceError';

  constructor(
    message: string,
    /** Connect's name of the code, such as `not_found`. */
    readonly code: string,
    /** It came as a plain HTTP answer: no stream was begun, and so no command. */
    readonly isRefusal: boolean,
  ) {
    super(message);
  }

  /** From `{code, message}`, as the end of a stream has it. */
  static fromJson(json: unknown, otherwise: string, isRefusal: boolean): ServiceError {
    const { code, message } = (typeof json === 'object' && json !== null ? json : {}) as Record<
      string,
      unknown
    >;
    const known = typeof code === 'string' && knownCodes.has(code) ? code : otherwise;
    return new ServiceError(typeof message === 'string' && message ? message : known, known, isRefusal);
  }

  /** From an HTTP answer that is no success. */
  static fromAnswer(status: number, body: Uint8Array): ServiceError {
    let json: unknown;
    try {
      json = JSON.parse(new TextDecoder().decode(body));
    } catch {
      // A proxy's page: the status is all there is.
      json = { message: `HTTP ${status}` };
    }
    return ServiceError.fromJson(json, codeOfStatus[status] ?? 'unknown', true);
  }
}
