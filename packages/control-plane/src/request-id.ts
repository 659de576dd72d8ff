/** The id by which a request is found in every log it passes: API, gateway, node agent. Used by `edge/` and `http/`. */
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** The header that carries it, both ways and on to the node agent. */
export const requestIdHeader = 'x-request-id';

/** The client's own id when it looks like one, so that a request can be followed through; else a new one. */
export function requestIdOf(headers: IncomingHttpHeaders): string {
  const given = headers[requestIdHeader];
  return typeof given === 'string' && /^[\w.-]{1,64}$/.test(given)
    ? given
    : randomUUID().replaceAll('-', '').slice(16);
}
