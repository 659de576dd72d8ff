/** The system's names for a connection that could not be made or broke. Read by both transports. */

const brokenCodes: ReadonlySet<string> = new Set([
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENETRESET',
  'ENOTCONN',
]);
/** Causes of causes that are looked through. */
const maxDepth = 8;

/** The first code in the chain of causes, such as `ECONNRESET` or one of our own. */
export function codeOf(cause: unknown): string | undefined {
  let current = cause;
  for (let depth = 0; depth < maxDepth && current instanceof Error; depth++) {
    const own = (current as { code?: unknown }).code;
    if (typeof own === 'string') return own;
    // `localhost` with two addresses fails as an AggregateError; fetch hides the reason in `cause`.
    current = (current as { errors?: unknown[] }).errors?.[0] ?? current.cause;
  }
  return undefined;
}

/** True when a connection that had been made broke. */
export function isBrokenConnection(cause: unknown): boolean {
  return brokenCodes.has(codeOf(cause) ?? '');
}

/** What such a code means, for a message. */
export function connectionText(code: string | undefined, cause: unknown): string {
  if (code === 'ECONNREFUSED') return 'connection refused (nothing listens there)';
  if (code === 'ENOENT') return 'there is no such socket';
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'the host name cannot be resolved';
  if (code === 'ECONNRESET' || code === 'EPIPE') return 'the connection was closed by the other side';
  return `the connection failed (${code ?? (cause instanceof Error ? cause.message : String(cause))})`;
}
