/**
 * Reads from a namespace's rules what was in force before our restart: the mark of the plan, the sets of names
 * and their addresses. Pure; used by `../tap-networks.ts` when it adopts.
 */
import type { AdmittedAddress } from './admitted-names.js';

/** What was found. */
export interface FoundEgress {
  /** Of the plan in force; `none` in a fresh namespace. */
  digest: string;
  setNames: string[];
  admissions: AdmittedAddress[];
}

/** What a fresh namespace has. */
export const freshEgress: FoundEgress = { digest: 'none', setNames: [], admissions: [] };

interface NftElement {
  elem?: { val?: unknown; expires?: number; comment?: string };
}

interface NftItem {
  set?: { name: string; elem?: NftElement[] };
  rule?: { chain: string; comment?: string };
}

/** Reads the output of `nft -j list table inet sl`. Undefined if it is not such a table, e.g. of a half-made namespace. */
export function readEgress(listing: unknown): FoundEgress | undefined {
  const items = (listing as { nftables?: NftItem[] } | undefined)?.nftables;
  if (!Array.isArray(items)) return undefined;
  const marks = items.flatMap(({ rule }) =>
    rule?.chain === 'egress' && rule.comment?.startsWith('plan ') ? [rule.comment] : [],
  );
  if (marks.length !== 1) return undefined;
  const sets = items.flatMap(({ set }) => (set && /^names\d+$/.test(set.name) ? [set] : []));
  const admissions = sets.flatMap((set) =>
    (set.elem ?? []).flatMap(({ elem }) =>
      // Without a comment the name was too long to keep: it is resolved again.
      typeof elem?.val === 'string' && elem.comment && elem.expires
        ? [{ name: elem.comment, address: elem.val, timeout: elem.expires }]
        : [],
    ),
  );
  return { digest: marks[0]!.slice('plan '.length), setNames: sets.map((set) => set.name), admissions };
}
