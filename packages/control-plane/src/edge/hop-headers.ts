/** Which headers are passed on: all but those that speak of one connection only (RFC 9110, section 7.6.1). */

const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  // Answered by our own server before the request gets here.
  'expect',
  // HTTP/2 settings of an upgrade we do not make.
  'http2-settings',
]);

/** True for a header of one connection only. */
export function isHopByHop(name: string): boolean {
  return hopByHop.has(name.toLowerCase());
}

/** Headers to pass on, as Node's flat list of names and values. Their order and case stay. */
export function endToEndHeaders(raw: readonly string[]): string[] {
  const named = connectionOptions(raw);
  const result: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at] as string;
    const lower = name.toLowerCase();
    // Pseudo headers of HTTP/2 are no headers for HTTP/1.1.
    if (isHopByHop(lower) || named.has(lower) || name.startsWith(':')) continue;
    result.push(name, raw[at + 1] as string);
  }
  return result;
}

/** Headers that the sender has declared to be of this connection only. */
function connectionOptions(raw: readonly string[]): Set<string> {
  const names = new Set<string>();
  for (let at = 0; at + 1 < raw.length; at += 2)
    if ((raw[at] as string).toLowerCase() === 'connection')
      for (const name of (raw[at + 1] as string).split(',')) names.add(name.trim().toLowerCase());
  return names;
}
