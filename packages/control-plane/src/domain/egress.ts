/**
 * Checks and canonical form of network policies: lower case, IDNA, a bare address as /32. Used by
 * create and by the egress-policy route; the node enforces what comes out of here, and refuses nothing of it.
 */
import { neverReachableRanges } from '@sandlot/protocol';

/** An entry that cannot be used, and why. */
export class EgressEntryError extends Error {
  override readonly name = 'EgressEntryError';
}

/** The canonical form of an entry; throws {@link EgressEntryError}. */
export function canonicalEntry(raw: string): string {
  const text = raw.trim();
  if (/[/]{2}|[@?#\s]/.test(text))
    throw new EgressEntryError(`"${raw}": give a host or address only, no URL`);
  const [host, ports] = splitPorts(text, raw);
  return canonicalHost(host, raw) + canonicalPorts(ports, raw);
}

/** Refuses what would mean nothing in its list; `entry` is canonical. Throws {@link EgressEntryError}. */
export function checkForList(entry: string, list: 'allow' | 'deny'): void {
  const [host = '', ports] = entry.split(':');
  const isRange = /^[\d./]+$/.test(host);
  if (list === 'deny' && !isRange && ports !== undefined)
    throw new EgressEntryError(`"${entry}": a denied name cannot have a port, it is refused by the resolver`);
  const never =
    isRange && list === 'allow' ? neverReachableRanges.find((range) => contains(range, host)) : undefined;
  if (never !== undefined)
    throw new EgressEntryError(`"${entry}": it lies in ${never}, which no sandbox can reach`);
}

/** A policy in canonical form, without duplicates. */
export function canonicalEntries(entries: readonly string[]): string[] {
  return [...new Set(entries.map(canonicalEntry))];
}

function splitPorts(text: string, raw: string): [string, string | undefined] {
  const colons = text.split(':').length - 1;
  if (colons > 1) throw new EgressEntryError(`"${raw}": IPv6 is not supported`);
  const at = text.indexOf(':');
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

function canonicalPorts(ports: string | undefined, raw: string): string {
  if (ports === undefined) return '';
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(ports);
  const low = Number(match?.[1] ?? 0);
  const high = Number(match?.[2] ?? low);
  if (low < 1 || high > 65_535 || low > high)
    throw new EgressEntryError(`"${raw}": the port must be 1-65535 or low-high`);
  return low === high ? `:${low}` : `:${low}-${high}`;
}

function canonicalHost(host: string, raw: string): string {
  if (/^[\d./]+$/.test(host)) return canonicalAddress(host, raw);
  if (host.includes('/')) throw new EgressEntryError(`"${raw}": a path is not allowed`);
  const wildcard = host.startsWith('*.');
  const name = wildcard ? host.slice(2) : host;
  if (name.includes('*')) throw new EgressEntryError(`"${raw}": only a leftmost "*." wildcard is allowed`);
  const ascii = toAscii(name.replace(/\.$/, ''));
  // The URL parser makes an address of what looks like a number (0x7f.1).
  const valid = !/^[\d.]*$/.test(ascii) && ascii.length <= 253 && ascii.split('.').every(isLabel);
  if (!valid) throw new EgressEntryError(`"${raw}": not a host name, IPv4 address or CIDR`);
  if (wildcard && !ascii.includes('.'))
    throw new EgressEntryError(`"${raw}": a wildcard needs a domain of at least two parts`);
  return (wildcard ? '*.' : '') + ascii;
}

/** IDNA by the URL parser (https://url.spec.whatwg.org/#concept-domain-to-ascii); "" when it is no name. */
function toAscii(name: string): string {
  try {
    return new URL(`http://${name}`).hostname.toLowerCase();
  } catch {
    return '';
  }
}

function isLabel(label: string): boolean {
  return /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label);
}

function canonicalAddress(text: string, raw: string): string {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\/(\d{1,2}))?$/.exec(text);
  const octets = match?.slice(1, 5).map(Number) ?? [];
  const bits = match?.[5] === undefined ? 32 : Number(match[5]);
  if (match === null || octets.some((octet) => octet > 255) || bits > 32)
    throw new EgressEntryError(`"${raw}": not an IPv4 address or CIDR`);
  const network = networkOf(octets, bits);
  return `${[24, 16, 8, 0].map((shift) => Math.floor(network / 2 ** shift) % 256).join('.')}/${bits}`;
}

/** First address of the range with these octets, as a number. */
function networkOf(octets: readonly number[], bits: number): number {
  const value = octets.reduce((sum, octet) => sum * 256 + octet, 0);
  const size = 2 ** (32 - bits);
  return Math.floor(value / size) * size;
}

/** Whether a canonical range lies wholly inside another. */
function contains(outer: string, inner: string): boolean {
  const [outerBits, innerBits] = [outer, inner].map((range) => Number(range.split('/')[1])) as [
    number,
    number,
  ];
  const octets = (range: string) => (range.split('/')[0] ?? '').split('.').map(Number);
  return (
    innerBits >= outerBits && networkOf(octets(inner), outerBits) === networkOf(octets(outer), outerBits)
  );
}
