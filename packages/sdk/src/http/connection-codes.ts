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
/** What OpenSSL and Node say of a certificate, and what is to be said of it. */
const distrusted: Readonly<Record<string, string>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: 'it is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'its authority is not known here',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its authority is not known here',
  UNABLE_TO_GET_ISSUER_CERT: 'its authority is not known here',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its authority is not known here',
  CERT_UNTRUSTED: 'its authority is not trusted here',
  CERT_HAS_EXPIRED: 'it has expired',
  CERT_NOT_YET_VALID: 'it is not valid yet',
  CERT_REVOKED: 'it was revoked',
  INVALID_PURPOSE: 'it is not for servers',
  INVALID_CA: 'one of its authorities is none',
  ERR_TLS_CERT_ALTNAME_INVALID: 'it is for another name than the one of the URL',
};
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

/** True when the server's certificate was refused: nothing was sent, and trying again does not help. */
export function isDistrusted(code: string | undefined): boolean {
  return code !== undefined && Object.hasOwn(distrusted, code);
}

/** What such a code means, for a message. */
export function connectionText(code: string | undefined, cause: unknown): string {
  if (code === 'ECONNREFUSED') return 'connection refused (nothing listens there)';
  if (code === 'ENOENT') return 'there is no such socket';
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'the host name cannot be resolved';
  if (code === 'ECONNRESET' || code === 'EPIPE') return 'the connection was closed by the other side';
  if (code !== undefined && Object.hasOwn(distrusted, code)) {
    const advice = distrusted[code]?.startsWith('its authority') || code === 'DEPTH_ZERO_SELF_SIGNED_CERT';
    const how = advice
      ? '; to trust it, name a PEM file with it or its authority in NODE_EXTRA_CA_CERTS'
      : '';
    return `the certificate of the server is not trusted: ${distrusted[code]} (${code})${how}`;
  }
  if (
    code === 'ERR_SSL_WRONG_VERSION_NUMBER' ||
    code === 'ERR_SSL_PACKET_LENGTH_TOO_LONG' ||
    code === 'EPROTO'
  )
    return `no TLS is spoken there, or none that we know (${code}); a server without TLS has an http:// URL`;
  return `the connection failed (${code ?? (cause instanceof Error ? cause.message : String(cause))})`;
}
