/**
 * Turns a policy into one nft transaction for a sandbox's namespace, and answers which sets the addresses
 * of a resolved name belong to. Pure; carried out by `tap/tap-network.ts`.
 *
 * What is enforced: new connections only. Addresses and ranges by the packet filter, in both lists. A name
 * in an allow list admits the addresses that our resolver gave for it (so every name on a shared address
 * comes with it). A name in a deny list is refused by our resolver and nothing more: a guest that knows the
 * address by other means still reaches it.
 */
import { createHash } from 'node:crypto';
import {
  type Cidr,
  type CidrEntry,
  containsCidr,
  type EgressEntry,
  formatCidr,
  formatEgressEntry,
  type NameEntry,
  type PortRange,
} from '@sandlot/protocol';
import { matchesName, type ParsedPolicy } from './egress-policy.js';
import { isPrivate, privateRanges, type Reachability } from './ranges.js';

/** What of the instance a plan depends on. */
export interface EgressSurroundings {
  /** The host's service address, where opened host ports are reached. */
  serviceAddress: string;
  /** TCP ports of the host that the operator opened. */
  allowHostPorts: readonly number[];
  /** Private ranges that the operator opened. */
  allowPrivate: readonly Cidr[];
  /** Ranges that no policy opens. */
  never: readonly Cidr[];
}

/** A set of addresses that names were resolved to, all with the same ports. */
export interface NameSet {
  setName: string;
  ports: PortRange | undefined;
  entries: NameEntry[];
}

/** What the DNS proxy does for a sandbox: see `dns/dns-decision.ts`. */
export interface NamePolicy {
  mode: 'all' | 'none' | 'list' | 'deny';
  names: { name: string; wildcard: boolean }[];
}

/** A policy, ready to be put in force. */
export interface EgressPlan {
  /** Rules of chain `egress`, in order. */
  rules: string[];
  nameSets: NameSet[];
  names: NamePolicy;
  /** What a resolved name may lead to. */
  reach: Reachability;
  /** Same for equal plans; stands as a comment in the namespace, so that it is known again after a restart. */
  digest: string;
}

/** An address that is in a set for a while. */
export interface Admission {
  setName: string;
  address: string;
  /** Seconds. */
  timeout: number;
  /** The name asked for; kept as a comment in the set. */
  name: string;
}

const rejectRule = 'reject with icmpx admin-prohibited';

/** nft keeps at most 128 bytes of a comment (NFTNL_UDATA_COMMENT_MAXLEN of libnftnl). */
const maxCommentLength = 127;

/** Plans a policy. */
export function planEgress(policy: ParsedPolicy, around: EgressSurroundings): EgressPlan {
  switch (policy.mode) {
    case 'none':
      return finish([], [], { mode: 'none', names: [] }, around, []);
    case 'all':
      return finish(openRules([], around), [], { mode: 'all', names: [] }, around, []);
    case 'deny': {
      const names = policy.entries.filter(isName).map(({ name, wildcard }) => ({ name, wildcard }));
      const mode = names.length > 0 ? 'deny' : 'all';
      return finish(openRules(policy.entries.filter(isCidr), around), [], { mode, names }, around, []);
    }
    case 'allow':
      return planAllowList(policy.entries, around);
  }
}

/**
 * The whole transaction: `current` are the sets of names there now, `kept` the addresses to carry over.
 * nft applies it all or not at all.
 */
export function writeEgress(
  plan: EgressPlan,
  current: readonly string[],
  kept: readonly Admission[],
): string {
  const lines = ['flush chain inet sl egress', ...current.map((name) => `delete set inet sl ${name}`)];
  for (const { setName } of plan.nameSets) {
    lines.push(`add set inet sl ${setName} { type ipv4_addr; flags timeout; size 4096; }`);
  }
  lines.push(...kept.map(writeAdd));
  lines.push(...plan.rules.map((rule) => `add rule inet sl egress ${rule}`));
  // The last rule is also the mark of the plan.
  lines.push(`add rule inet sl egress ${rejectRule} comment "plan ${plan.digest}"`);
  return `${lines.join('\n')}\n`;
}

/** Adds addresses, or renews them. */
export function writeAdmissions(admissions: readonly Admission[]): string {
  // Before Linux 6.12 adding an element that is there does not renew its time: delete and add in one transaction.
  return admissions
    .flatMap((one) => [
      writeAdd(one),
      `delete element inet sl ${one.setName} { ${one.address} }`,
      writeAdd(one),
    ])
    .map((line) => `${line}\n`)
    .join('');
}

/** The sets that addresses of this name go into; empty if the name is in no list. */
export function setsForName(plan: EgressPlan, asked: string): string[] {
  return plan.nameSets
    .filter((set) => set.entries.some((entry) => matchesName(asked, entry)))
    .map((set) => set.setName);
}

function planAllowList(entries: EgressEntry[], around: EgressSurroundings): EgressPlan {
  const ranges = entries.filter(isCidr);
  const nameSets = groupNames(entries.filter(isName));
  // Without ports an entry for private space also says that a name may lead there.
  const opened = ranges.filter((entry) => isPrivate(entry.range) && !entry.ports).map((entry) => entry.range);
  const rules = [
    ...rangeRules(ranges.filter((entry) => isPrivate(entry.range))),
    ...nameSets.map((set) => `${portMatch(set.ports)}ip daddr @${set.setName} accept`),
    // A wide entry (0.0.0.0/0) does not open private space: only an entry inside it does.
    `ip daddr { ${privateRanges.map(formatCidr).join(', ')} } ${rejectRule}`,
    ...rangeRules(ranges.filter((entry) => !isPrivate(entry.range))),
  ];
  const names = dedupeNames(nameSets.flatMap((set) => set.entries));
  return finish(rules, nameSets, { mode: 'list', names }, around, opened);
}

function openRules(denied: CidrEntry[], around: EgressSurroundings): string[] {
  const rules = rangeRules(denied, rejectRule);
  if (around.allowHostPorts.length > 0) {
    rules.push(`ip daddr ${around.serviceAddress} tcp dport { ${around.allowHostPorts.join(', ')} } accept`);
  }
  if (around.allowPrivate.length > 0) {
    rules.push(`ip daddr { ${mergeRanges(around.allowPrivate).map(formatCidr).join(', ')} } accept`);
  }
  rules.push(`ip daddr { ${privateRanges.map(formatCidr).join(', ')} } ${rejectRule}`, 'accept');
  return rules;
}

function rangeRules(entries: CidrEntry[], verdict = 'accept'): string[] {
  return [...groupByPorts(entries).values()].map((group) => {
    const ranges = mergeRanges(group.map((entry) => entry.range));
    return `${portMatch(group[0]!.ports)}ip daddr { ${ranges.map(formatCidr).join(', ')} } ${verdict}`;
  });
}

function groupNames(entries: NameEntry[]): NameSet[] {
  return [...groupByPorts(entries).values()].map((group, index) => ({
    setName: `names${index}`,
    ports: group[0]!.ports,
    entries: group,
  }));
}

function groupByPorts<T extends EgressEntry>(entries: T[]): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const entry of entries) {
    const key = entry.ports ? `${entry.ports.low}-${entry.ports.high}` : '';
    groups.set(key, [...(groups.get(key) ?? []), entry]);
  }
  return groups;
}

function portMatch(ports: PortRange | undefined): string {
  if (!ports) return '';
  const range = ports.low === ports.high ? `${ports.low}` : `${ports.low}-${ports.high}`;
  return `meta l4proto { tcp, udp } th dport ${range} `;
}

/** An anonymous set refuses elements that overlap: drops ranges that lie in another one. */
export function mergeRanges(ranges: readonly Cidr[]): Cidr[] {
  const kept: Cidr[] = [];
  for (const range of [...ranges].sort((a, b) => a.bits - b.bits || a.base - b.base)) {
    if (!kept.some((outer) => containsCidr(outer, range))) kept.push(range);
  }
  return kept;
}

function dedupeNames(entries: NameEntry[]): { name: string; wildcard: boolean }[] {
  const byText = new Map(
    entries.map(({ name, wildcard }) => [`${wildcard ? '*.' : ''}${name}`, { name, wildcard }]),
  );
  return [...byText.values()];
}

function finish(
  rules: string[],
  nameSets: NameSet[],
  names: NamePolicy,
  around: EgressSurroundings,
  opened: readonly Cidr[],
): EgressPlan {
  const sets = nameSets.map((set) => [set.setName, set.entries.map(formatEgressEntry)]);
  const digest = createHash('sha256')
    .update(JSON.stringify([rules, sets, names]))
    .digest('hex')
    .slice(0, 16);
  const reach = { never: around.never, opened: [...opened, ...around.allowPrivate] };
  return { rules, nameSets, names, reach, digest };
}

function writeAdd({ setName, address, timeout, name }: Admission): string {
  const comment = /^[a-z0-9_.-]+$/.test(name) && name.length <= maxCommentLength ? ` comment "${name}"` : '';
  return `add element inet sl ${setName} { ${address} timeout ${timeout}s${comment} }`;
}

function isName(entry: EgressEntry): entry is NameEntry {
  return entry.kind === 'name';
}

function isCidr(entry: EgressEntry): entry is CidrEntry {
  return entry.kind === 'cidr';
}
