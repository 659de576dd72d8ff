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
