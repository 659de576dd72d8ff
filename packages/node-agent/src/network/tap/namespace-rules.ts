/**
 * What is loaded into one sandbox's namespace: the rules with policy "none", and the lines for `ip -batch`.
 * Pure; carried out by `namespaces.ts`. What each rule is for: `../README.md`.
 */

import { type Cidr, formatCidr } from '@sandlot/protocol';
import { guestAddresses } from '../contract.js';
import { mergeRanges } from '../policy/egress-plan.js';
import type { NetworkNames } from './layout.js';

/** What the rules depend on beside the names. */
export interface NamespaceRuleOptions {
  serviceAddress: string;
  never: readonly Cidr[];
  allowHostPorts: readonly number[];
  /** Connections tracked at once; the host's table is shared by all sandboxes. */
  maxConnections: number;
}

/** Name of the tap in every namespace. */
export const tapName = 'tap0';

const uplinkName = 'up0';

/** Settings of a namespace, never relied on to be inherited. */
export const namespaceSettings = [
  'net.ipv4.ip_forward=1',
  // A connection's middle is not taken for its start: a forked guest's copy of it is reset, nothing leaves.
  'net.netfilter.nf_conntrack_tcp_loose=0',
  'net.ipv6.conf.all.disable_ipv6=1',
  // Every refused packet is answered, not one a second: ICMP errors here go to the guest alone.
  'net.ipv4.icmp_ratelimit=0',
] as const;

/** First lines, on the host: the namespace and its pair of links, still down. */
export function writeHostLinks(names: NetworkNames, serviceAddress: string): string[] {
  return [
    `netns add ${names.namespace}`,
    `link add ${names.link} type veth peer name ${uplinkName} netns ${names.namespace}`,
    `addr add ${serviceAddress} peer ${names.address} dev ${names.link}`,
  ];
}

/** In the namespace, before the rules: they need the tap to exist. It stays down. */
export function writeTap(names: NetworkNames, serviceAddress: string): string[] {
  return [
    'link set lo up',
    `tuntap add dev ${tapName} mode tap vnet_hdr user ${names.uid}`,
    // The same in every namespace: a restored guest keeps its neighbour entry.
    `link set ${tapName} address ${guestAddresses.gatewayMac}`,
    `addr add ${guestAddresses.gateway}/${guestAddresses.prefixLength} dev ${tapName}`,
    `addr add ${guestAddresses.resolver}/32 dev ${tapName}`,
    `addr add ${names.address} peer ${serviceAddress} dev ${uplinkName}`,
  ];
}

/** In the namespace, after the rules. */
export function writeUp(serviceAddress: string): string[] {
  return [
    `link set ${tapName} up`,
    `neigh replace ${guestAddresses.address} lladdr ${guestAddresses.guestMac} dev ${tapName} nud permanent`,
    `link set ${uplinkName} up`,
    `route add default via ${serviceAddress} dev ${uplinkName} onlink`,
  ];
}

/** The whole rule set, with policy "none". */
export function writeNamespaceRules(names: NetworkNames, options: NamespaceRuleOptions): string {
  const { address: guest, guestMac, gateway, resolver } = guestAddresses;
  const { serviceAddress } = options;
  const never = mergeRanges(options.never).map(formatCidr).join(', ');
  const hostPorts = options.allowHostPorts.join(', ');
  return `table netdev sl {
  chain tapin {
    type filter hook ingress device "${tapName}" priority 0; policy drop;
    ether saddr != ${guestMac} drop
    ether type arp arp saddr ether ${guestMac} arp saddr ip ${guest} arp daddr ip { ${gateway}, ${resolver} } accept
    ether type arp drop
    ether type ip ip saddr ${guest} accept
  }
}
table inet sl {
  chain egress {
    reject with icmpx admin-prohibited comment "plan none"
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
    iifname "${tapName}" meta l4proto tcp ct state invalid,new tcp flags & (fin|syn|rst|ack) != syn reject with tcp reset
    ct state invalid drop
    iifname "${tapName}" oifname "${uplinkName}" jump fromguest
    iifname "${uplinkName}" oifname "${tapName}" ct status dnat accept
  }
  chain fromguest {
    meta l4proto != { tcp, udp, icmp } drop
    ct count over ${options.maxConnections} reject with icmpx admin-prohibited
    ct status dnat ip daddr ${serviceAddress} meta l4proto { tcp, udp } th dport 53 accept
    ${hostPorts ? `ip daddr ${serviceAddress} tcp dport { ${hostPorts} } jump egress` : ''}
    ip daddr { ${never} } reject with icmpx admin-prohibited
    jump egress
  }
  chain input {
    type filter hook input priority 0; policy drop;
    ct state established,related accept
    iifname "${tapName}" ip daddr ${gateway} icmp type echo-request accept
  }
  chain output {
    type filter hook output priority 0; policy drop;
    ct state established,related accept
    oifname { "${tapName}", "${uplinkName}" } icmp type { destination-unreachable, time-exceeded, parameter-problem } accept
    meta l4proto tcp tcp flags & rst == rst accept
  }
  chain pre {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "${tapName}" meta l4proto { tcp, udp } th dport 53 dnat ip to ${serviceAddress}
    iifname "${uplinkName}" ip saddr ${serviceAddress} meta l4proto tcp dnat ip to ${guest}
  }
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "${uplinkName}" ip saddr ${guest} snat ip to ${names.address}
  }
}
`;
}
