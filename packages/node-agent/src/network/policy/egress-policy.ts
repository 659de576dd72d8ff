/**
 * Reads an egress policy, and says whether a name that a guest asks for is meant by an entry. What an entry may look like
 * is in the protocol (`egress-entries.ts`). Pure; used by the plan, the networks and the DNS proxy.
 */
import {
  checkEgressEntry,
  type EgressEntry,
  EgressEntryError,
  type EgressPolicy,
  formatEgressEntry,
  maxEgressEntries,
  type NameEntry,
  parseEgressEntry,
} from '@sandlot/protocol';
import { NetworkError } from '../contract.js';

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
    const entry = readEntry(text, kind);
    byText.set(formatEgressEntry(entry), entry);
  }
  return [...byText.values()];
}

function readEntry(text: string, kind: 'allow' | 'deny'): EgressEntry {
  try {
    const entry = parseEgressEntry(text);
    checkEgressEntry(entry, kind);
    return entry;
  } catch (cause) {
    if (cause instanceof EgressEntryError) throw invalid(cause.message, { cause });
    throw cause;
  }
}

function invalid(reason: string, options?: ErrorOptions): NetworkError {
  return new NetworkError('invalid-policy', `egress policy refused: ${reason}`, options);
}
