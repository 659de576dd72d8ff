/** From the two lists of a request to a network policy in canonical form. Used by create and by the policy route. Pure. */
import {
  checkEgressEntry,
  EgressEntryError,
  type EgressPolicy,
  formatEgressEntry,
  parseEgressEntry,
  type SchemaIssue,
} from '@sandlot/protocol';

/** The policy; what is wrong is added to `issues`. `names` are the request's names of the lists. */
export function buildPolicy(
  lists: { allowlist: readonly string[] | null; denylist: readonly string[] | null },
  generation: number,
  names: { allow: string; deny: string },
  issues: SchemaIssue[],
): EgressPolicy {
  const { allowlist, denylist } = lists;
  if (allowlist !== null && denylist !== null)
    issues.push({ param: names.allow, details: `Give either ${names.allow} or ${names.deny}, not both.` });
  // Neither list: everything public, in the wire's form of it.
  if (allowlist === null && denylist === null) return { generation, allowlist: null, denylist: [] };
  return {
    generation,
    allowlist: allowlist && canonical(allowlist, 'allow', names.allow, issues),
    denylist: denylist && canonical(denylist, 'deny', names.deny, issues),
  };
}

function canonical(
  entries: readonly string[],
  list: 'allow' | 'deny',
  param: string,
  issues: SchemaIssue[],
): string[] {
  const result = new Set<string>();
  for (const [index, entry] of entries.entries())
    try {
      const parsed = parseEgressEntry(entry);
      checkEgressEntry(parsed, list);
      result.add(formatEgressEntry(parsed));
    } catch (error) {
      if (!(error instanceof EgressEntryError)) throw error;
      issues.push({ param: `${param}.${index}`, details: `${error.message}.` });
    }
  return [...result];
}
