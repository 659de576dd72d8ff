/** Most entries of a list: Prime's limit, which also bounds the rules of one sandbox. */
export const maxEgressEntries = 256;

/**
 * Never reachable from a sandbox, whatever a policy says: "this network", loopback, link-local (metadata
 * services), multicast and reserved (IANA special-purpose registry).
 */
export const neverReachableRanges = ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/3'] as const;

/** What a sandbox may reach. Both the API and the node agent use this form. */
export interface EgressPolicy {
  /** Raised with every change; 0 at create. */
  generation: number;
  /**
   * `null` with an empty denylist: everything public. An empty allowlist: nothing. Entries are a
   * host name, a leftmost wildcard (`*.example.org`), an IPv4 address or an IPv4 CIDR, each with
   * an optional `:port` or `:low-high`.
   */
  allowlist: string[] | null;
  /** `null` with an empty allowlist: deny all. Entries as in `allowlist`; never both lists. */
  denylist: string[] | null;
}
