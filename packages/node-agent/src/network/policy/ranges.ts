/**
 * The address ranges that egress rules treat specially. Pure; used by the policy plan, the rule sets and
 * the check of DNS answers.
 */
import {
  type Cidr,
  containsAddress,
  containsCidr,
  neverReachableRanges,
  overlaps,
  parseCidr,
} from '@sandlot/protocol';

/** Where every instance on a host takes its own /20 from. */
export const instanceRange: Cidr = mustParse('10.77.0.0/16');

/** Never reachable from a sandbox, whatever a policy says: the protocol's ranges and the sandboxes of all instances. */
export const neverReachable: readonly Cidr[] = [...neverReachableRanges, '10.77.0.0/16'].map(mustParse);

/** Reachable only when an allow list or the operator names them: RFC 1918 and RFC 6598. */
export const privateRanges: readonly Cidr[] = [
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '100.64.0.0/10',
].map(mustParse);

/** Whether a range lies wholly inside private space: only such an entry of an allow list opens private addresses. */
export function isPrivate(range: Cidr): boolean {
  return privateRanges.some((outer) => containsCidr(outer, range));
}

/** What of the address space one instance's sandboxes may be given by name. */
export interface Reachability {
  /** {@link neverReachable} and the instance's own subnet. */
  never: readonly Cidr[];
  /** Private ranges that are open. */
  opened: readonly Cidr[];
}

/** Whether an address that a DNS answer gives may be let through: never a forbidden one, a private one only if opened. */
export function mayBeAdmitted(address: number, reach: Reachability): boolean {
  if (reach.never.some((range) => containsAddress(range, address))) return false;
  if (reach.opened.some((range) => containsAddress(range, address))) return true;
  return !privateRanges.some((range) => containsAddress(range, address));
}

/** Whether any address of the range is in one of the others. */
export function touches(range: Cidr, others: readonly Cidr[]): boolean {
  return others.some((other) => overlaps(range, other));
}

function mustParse(text: string): Cidr {
  const range = parseCidr(text);
  if (!range) throw new Error(`not a CIDR: ${text}`);
  return range;
}
