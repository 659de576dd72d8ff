/**
 * The decisions of the DNS proxy, apart from its sockets: what to do with a question, and what to leave of an
 * answer. Pure; called by `dns-answering.ts`.
 */

import { parseIpv4 } from '@sandlot/protocol';
import type { Answer, Packet, Question, StringAnswer } from 'dns-packet';
import { matchesName, normalizeName } from '../policy/egress-policy.js';
import { mayBeAdmitted } from '../policy/ranges.js';
import type { ResolvedAddress, SourcePolicy } from './dns-messages.js';

/** Response codes (RFC 1035, 4.1.1). */
export const responseCode = {
  ok: 0,
  malformed: 1,
  failed: 2,
  noSuchName: 3,
  notImplemented: 4,
  refused: 5,
} as const;

/** What to do with a question. */
export type Decision =
  /** Answer with this code and no records. */
  | { kind: 'answer'; code: number }
  /** Ask upstream, hand the answer on as it is. */
  | { kind: 'pass' }
  /** As `pass`, but refuse if the chain of names in the answer meets a denied one. */
  | { kind: 'pass-checked' }
  /** Ask upstream for addresses, admit them, then answer. */
  | { kind: 'admit' };

/** Decides by the policy of the asking sandbox; undefined: no sandbox that we know. */
export function decide(question: Question, policy: SourcePolicy | undefined): Decision {
  if (!policy) return { kind: 'answer', code: responseCode.refused };
  const { mode, names } = policy.names;
  if (mode === 'none') return { kind: 'answer', code: responseCode.refused };
  if (mode === 'all') return { kind: 'pass' };
  const listed = names.some((entry) => matchesName(question.name, entry));
  if (mode === 'deny')
    return listed ? { kind: 'answer', code: responseCode.refused } : { kind: 'pass-checked' };
  if (!listed) return { kind: 'answer', code: responseCode.refused };
  // Only addresses: other records (TXT above all) would be a tunnel past the list, AAAA and HTTPS lead nowhere.
  return question.type === 'A' ? { kind: 'admit' } : { kind: 'answer', code: responseCode.ok };
}

/** Whether an answer's chain of names (CNAME, DNAME) leads through a denied one. */
export function leadsThroughDenied(answers: readonly Answer[], policy: SourcePolicy): boolean {
  return answers.some(
    (answer) => isAlias(answer) && policy.names.names.some((entry) => matchesName(answer.data, entry)),
  );
}

/** What the guest gets in list mode. */
export interface FilteredAnswer {
  answers: Answer[];
  addresses: ResolvedAddress[];
}

/** An answer of more addresses than this is cut; one name must not fill a sandbox's set. */
const maxAddresses = 64;

/**
 * Keeps the chain from the asked name to its addresses. Addresses that must not be reached are taken out, so
 * that an allowed name cannot be pointed at the host or at private space.
 */
export function filterAnswer(
  asked: string,
  answers: readonly Answer[],
  policy: SourcePolicy,
): FilteredAnswer {
  const chain = new Set([normalizeName(asked)]);
  const kept: Answer[] = [];
  const aliases = answers.filter(isAlias);
  // As many passes as links: the order of records is free.
  for (let pass = 0; pass < aliases.length; pass += 1) {
    for (const alias of aliases) {
      if (!chain.has(normalizeName(alias.name)) || kept.includes(alias)) continue;
      kept.push(alias);
      chain.add(normalizeName(alias.data));
    }
  }
  const addresses: ResolvedAddress[] = [];
  for (const answer of answers) {
    if (answer.type !== 'A' || !chain.has(normalizeName(answer.name)) || addresses.length >= maxAddresses)
      continue;
    const address = parseIpv4(answer.data);
    if (address === undefined || !mayBeAdmitted(address, policy.reach)) continue;
    kept.push(answer);
    addresses.push({ address: answer.data, ttl: answer.ttl ?? 0 });
  }
  return { answers: kept, addresses };
}

function isAlias(answer: Answer): answer is StringAnswer {
  return answer.type === 'CNAME' || answer.type === 'DNAME';
}

/** The largest UDP answer that the asker takes (RFC 6891), bounded so that it is not fragmented. */
export function maxUdpBytes(query: Packet): number {
  const option = query.additionals?.find((record) => record.type === 'OPT');
  return Math.min(Math.max(option?.udpPayloadSize ?? 512, 512), 1232);
}
