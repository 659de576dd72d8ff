/**
 * The grammar of an entry of an egress list: a host name, a leftmost wildcard, an IPv4 address or a CIDR, with an
 * optional port or port range. The control plane writes entries in canonical form with it, the node agent reads
 * them with it. Pure.
 */
import { neverReachableRanges } from './egress.js';
import { type Cidr, containsCidr, formatIpv4, parseCidr } from './ipv4.js';

/** An entry that cannot be used; the message names it and says why. */
export class EgressEntryError extends Error {
  override readonly name = 'EgressEntryError';
}

/** Inclusive range of TCP and UDP ports. */
export interface PortRange {
  low: number;
  high: number;
}

/** A host name; `wildcard` stands for every name below it and not for the name itself. */
export interface NameEntry {
  kind: 'name';
  name: string;
  wildcard: boolean;
  /** Undefined: any protocol and port. */
  ports: PortRange | undefined;
}

/** An address or a range of them. */
export interface CidrEntry {
  kind: 'cidr';
  range: Cidr;
  /** Undefined: any protocol and port. */
  ports: PortRange | undefined;
}

/** One parsed entry of a list. */
export type EgressEntry = NameEntry | CidrEntry;

/** Most characters of an entry: the longest name, a wildcard and two ports have room. */
const maxEntryLength = 300;

/** Parses one entry. Throws {@link EgressEntryError}. */
export function parseEgressEntry(raw: string): EgressEntry {
  const text = raw.trim().toLowerCase();
  if (text.length > maxEntryLength) throw refused(raw, `it is longer than ${maxEntryLength} characters`);
  if (/\/\/|[@?#\s]/.test(text)) throw refused(raw, 'give a host or address only, no URL');
  const [host = '', ports, ...more] = text.split(':');
  if (more.length > 0 || /[[\]]/.test(text))
    throw refused(raw, 'it looks like IPv6, and sandboxes have IPv4 only');
  const parsedPorts = ports === undefined ? undefined : parsePorts(ports, raw);
  // Digits and dots are meant as an address, whatever comes after a slash.
  if (!/^[\d.]+(\/.*)?$/.test(host)) return { kind: 'name', ...parseName(host, raw), ports: parsedPorts };
  const range = parseCidr(host);
  if (!range) throw refused(raw, 'not an IPv4 address or CIDR');
  return { kind: 'cidr', range, ports: parsedPorts };
}

/** The form in which an entry is stored and compared: lower case, IDNA, host bits cleared, a bare address as /32. */
export function formatEgressEntry(entry: EgressEntry): string {
  const host =
    entry.kind === 'cidr'
      ? `${formatIpv4(entry.range.base)}/${entry.range.bits}`
      : `${entry.wildcard ? '*.' : ''}${entry.name}`;
  if (!entry.ports) return host;
  const { low, high } = entry.ports;
  return low === high ? `${host}:${low}` : `${host}:${low}-${high}`;
}

/** Refuses what would mean nothing in its list. Throws {@link EgressEntryError}. */
export function checkEgressEntry(entry: EgressEntry, list: 'allow' | 'deny'): void {
  if (list === 'deny' && entry.kind === 'name' && entry.ports)
    throw refused(
      formatEgressEntry(entry),
      'a denied name cannot have a port, because it is refused by the resolver',
    );
  if (list === 'deny' || entry.kind === 'name') return;
  const outer = neverReachableRanges.find((range) => containsCidr(parseCidr(range)!, entry.range));
  if (outer !== undefined)
    throw refused(formatEgressEntry(entry), `it lies in ${outer}, which no sandbox can reach`);
}

function parsePorts(text: string, raw: string): PortRange {
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text);
  const low = Number(match?.[1]);
  const high = Number(match?.[2] ?? match?.[1]);
  if (!match || low < 1 || high > 65_535 || low > high)
    throw refused(raw, 'the port must be 1-65535 or low-high');
  return { low, high };
}

function parseName(host: string, raw: string): Pick<NameEntry, 'name' | 'wildcard'> {
  if (host.includes('/')) throw refused(raw, 'a path is not allowed');
  const wildcard = host.startsWith('*.');
  const written = wildcard ? host.slice(2) : host;
  if (written.includes('*')) throw refused(raw, 'only a leftmost "*." wildcard is allowed');
  const name = toAscii(written.replace(/\.$/, ''));
  const wellFormed = !/^[\d.]*$/.test(name) && name.length <= 253 && name.split('.').every(isLabel);
  if (!wellFormed) throw refused(raw, 'not a host name, IPv4 address or CIDR');
  if (wildcard && !name.includes('.')) throw refused(raw, 'a wildcard needs a domain of at least two parts');
  return { name, wildcard };
}

/**
 * IDNA by the URL parser (https://url.spec.whatwg.org/#concept-domain-to-ascii); "" when it is no name. It makes an
 * address of what looks like a number (0x7f.1).
 */
function toAscii(name: string): string {
  // Of ASCII only what host names have: the parser would decode "%61" and end the name at "\".
  if (!/^[a-z0-9_.\-\u0080-\u{10ffff}]*$/u.test(name)) return '';
  try {
    return new URL(`http://${name}`).hostname;
  } catch {
    return '';
  }
}

function isLabel(label: string): boolean {
  return /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label);
}

function refused(entry: string, reason: string): EgressEntryError {
  const shown = entry.length > 80 ? `${entry.slice(0, 80)}…` : entry;
  return new EgressEntryError(`"${shown}": ${reason}`);
}
