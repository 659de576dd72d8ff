/**
 * What a client says of the output that it has got, and what it is told: both in the form of a query.
 * Used by the Connect service (in headers) and by the REST route `received`.
 */
import type { ExecAttachment, ExecPosition } from '@sandlot/protocol';
import { GatewayError } from './failures.js';

const counts = ['stdout', 'stderr', 'pty', 'dropped'] as const;
/** A reader's name is a UUID. */
const readerMaxLength = 128;

/**
 * The fields that we know; others are left out.
 * @throws GatewayError 400 for a count that is none
 */
export function parseAttachment(text: string): ExecAttachment {
  const query = new URLSearchParams(text);
  const attachment: ExecAttachment = {};
  for (const name of counts) {
    const value = query.get(name);
    if (value === null) continue;
    const count = Number(value);
    if (!/^\d+$/.test(value) || !Number.isSafeInteger(count))
      throw new GatewayError(400, 'bad_request', `${name}: must be a count of bytes, got "${value}".`);
    attachment[name] = count;
  }
  const reader = query.get('reader');
  if (reader) attachment.reader = reader.slice(0, readerMaxLength);
  if (query.get('confirms') === '1') attachment.confirms = 1;
  return attachment;
}

/** For the header that tells where the output of a stream begins. */
export function formatPosition(position: ExecPosition): string {
  return counts.map((name) => `${name}=${position[name]}`).join('&');
}
