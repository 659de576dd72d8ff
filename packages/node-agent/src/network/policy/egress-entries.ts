/**
 * Reads an egress policy: each entry of its lists is a host name, a leftmost wildcard, an IPv4 address or
 * a CIDR, with an optional port or port range. Pure; used by the plan and by whoever validates a request.
 */
import { domainToASCII } from 'node:url';
import { type EgressPolicy, maxEgressEntries } from '@sandlot/protocol';
import { NetworkError } from '../contract.js';
import { type Cidr, containsCidr, formatCidr, parseCidr } from './ipv4.js';
import { neverReachable } from './ranges.js';

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

/** A policy as the plan understands it. */
export type ParsedPolicy =
  | { mode: 'all' | 'none' }
  | { mode: 'allow'; entries: EgressEntry[] }
  | { mode: 'deny'; entries: EgressEntry[] };

/** Parses and checks a whole policy. Throws {@link NetworkError} `invalid-policy` naming the entry at fault. */
export function parseEgressPolicy(policy: Pick<EgressPolicy, 'allowlist' | 'denylist'>): ParsedPolicy {
  const { allowlist, denylist } = policy;
  if (allowlist === null && denylist === null) {
    throw invalid('both lists are null; send allowlist null with an empty denylist to allow everything');
  }
  if (allowlist !== null) {
    if (denylist !== null && denylist.length > 0) {
      throw invalid('an allowlist and a denylist exclude each other; send one of them');
    }
    if (allowlist.length === 0) return { mode: 'none' };
    return { mode: 'allow', entries: parseList(allowlist, 'allow') };
  }
  const denied = denylist ?? [];
  return denied.length === 0 ? { mode: 'all' } : { mode: 'deny', entries: parseList(denied, 'deny') };
}

/** Parses one entry. Throws {@link NetworkError} `invalid-policy`. */
export function parseEgressEntry(text: string): EgressEntry {
  const entry = text.trim().toLowerCase();
  if (entry.length === 0 || entry.length > 300)
    throw invalid(`entry '${text.slice(0, 80)}' is empty or too long`);
  if (entry.includes('://')) throw invalid(`entry '${text}' has a scheme; give only the host name`);
  if (/[@?#\s]/.test(entry)) throw invalid(`entry '${text}' has a character that no host name has`);
  if (/[[\]]/.test(entry) || entry.split(':').length > 2) {
    throw invalid(`entry '${text}' looks like IPv6; sandboxes have IPv4 only`);
  }
  const colon = entry.indexOf(':');
  const host = colon < 0 ? entry : entry.slice(0, colon);
  const ports = colon < 0 ? undefined : parsePorts(entry.slice(colon + 1), text);
  if (/^[\d.]+(\/.*)?$/.test(host)) {
    const range = parseCidr(host);
    if (!range) throw invalid(`entry '${text}' is not an IPv4 address or CIDR`);
    return { kind: 'cidr', range, ports };
  }
  if (host.includes('/')) throw invalid(`entry '${text}' has a path; give only the host name`);
  return parseName(host, ports, text);
}

/** The form in which an entry is stored and compared: lower case, IDNA, host bits cleared. */
export function formatEgressEntry(entry: EgressEntry): string {
  const host =
    entry.kind === 'cidr' ? formatCidr(entry.range) : entry.wildcard ? `*.${entry.name}` : entry.name;
  if (!entry.ports) return host;
  const { low, high } = entry.ports;
  return low === high ? `${host}:${low}` : `${host}:${low}-${high}`;
}

/** Whether a name that a guest asks for is meant by an entry: exactly, or as a name below a wildcard. */
export function matchesName(asked: string, entry: Pick<NameEntry, 'name' | 'wildcard'>): boolean {
  const name = normalizeName(asked);
  if (!entry.wildcard) return name === entry.name;
  return name.length > entry.name.length + 1 && name.endsWith(`.${entry.name}`);
}

/** Lower case, without the root's dot. */
export function normalizeName(name: string): string {
  const lower = name.toLowerCase();
  return lower.endsWith('.') ? lower.slice(0, -1) : lower;
}

function parseList(list: readonly string[], kind: 'allow' | 'deny'): EgressEntry[] {
  if (list.length > maxEgressEntries)
    throw invalid(`${list.length} entries; at most ${maxEgressEntries} are possible`);
  const byText = new Map<string, EgressEntry>();
  for (const text of list) {
    const entry = parseEgressEntry(text);
    if (kind === 'allow' && entry.kind === 'cidr') refuseNeverReachable(entry.range, text);
    if (kind === 'deny' && entry.kind === 'name' && entry.ports) {
      throw invalid(`entry '${text}': a denied name cannot have a port, it is refused by the resolver`);
    }
    byText.set(formatEgressEntry(entry), entry);
  }
  return [...byText.values()];
}

function refuseNeverReachable(range: Cidr, text: string): void {
  // The instances' own range is left out: the service address in it can be opened for chosen ports.
  const inside = neverReachable.find(
    (outer) => containsCidr(outer, range) && formatCidr(outer) !== '10.77.0.0/16',
  );
  if (inside) throw invalid(`entry '${text}' lies in ${formatCidr(inside)}, which no sandbox can reach`);
}

function parsePorts(text: string, entry: string): PortRange {
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text);
  const low = Number(match?.[1]);
  const high = Number(match?.[2] ?? match?.[1]);
  if (!match || low < 1 || high > 65535 || low > high) {
    throw invalid(`entry '${entry}' has no port from 1 to 65535 or range low-high after its colon`);
  }
  return { low, high };
}

function parseName(host: string, ports: PortRange | undefined, text: string): NameEntry {
  const wildcard = host.startsWith('*.');
  const written = normalizeName(wildcard ? host.slice(2) : host);
  if (written.includes('*'))
    throw invalid(`entry '${text}': a wildcard is possible only as the leftmost label (*.example.org)`);
  // domainToASCII refuses the underscore of service names, which plain ASCII names may have.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the range of ASCII is what is meant
  const name = /^[\x00-\x7f]*$/.test(written) ? written : domainToASCII(written);
  const labels = name.split('.');
  const wellFormed = labels.every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
  if (name.length > 253 || !wellFormed) throw invalid(`entry '${text}' is not a host name`);
  if (/^\d+$/.test(labels[labels.length - 1]!))
    throw invalid(`entry '${text}' is neither an address nor a host name`);
  return { kind: 'name', name, wildcard, ports };
}

function invalid(reason: string): NetworkError {
  return new NetworkError('invalid-policy', `egress policy refused: ${reason}`);
}
