/**
 * What the node agent and its DNS proxy process say to each other over the IPC channel. The proxy has no
 * rights: it can only ask for addresses to be admitted, and the node agent checks each (`dns-proxy.ts`).
 */

import type { Cidr } from '@sandlot/protocol';
import type { NamePolicy } from '../policy/egress-plan.js';

/** First message to the proxy. */
export interface DnsProxyConfig {
  type: 'config';
  address: string;
  port: number;
  /** `ADDRESS` or `ADDRESS:PORT`; null: what /etc/resolv.conf says, read again when it changes. */
  upstreams: string[] | null;
}

/** What a sandbox may resolve, and what its answers may lead to. */
export interface SourcePolicy {
  names: NamePolicy;
  reach: { never: readonly Cidr[]; opened: readonly Cidr[] };
}

/** From the node agent. */
export type ToProxy =
  | DnsProxyConfig
  | { type: 'policy'; source: string; policy: SourcePolicy }
  | { type: 'forget'; source: string }
  /** Answer to `admit`. */
  | { type: 'admitted'; id: number; ok: boolean };

/** An address with the seconds that its record lives. */
export interface ResolvedAddress {
  address: string;
  ttl: number;
}

/** From the proxy. */
export type FromProxy =
  | { type: 'ready' }
  /** Addresses of an allowed name: the guest gets its answer when they are in the packet filter. */
  | { type: 'admit'; id: number; source: string; name: string; addresses: ResolvedAddress[] }
  | { type: 'failed'; message: string };
