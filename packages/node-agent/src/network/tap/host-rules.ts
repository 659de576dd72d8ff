/**
 * The nft table that one instance has on the host: what leaves and enters its sandboxes' links. Pure; loaded
 * by `host-setup.ts`. Every pattern carries the instance id, so tables of several instances do not meet.
 */

import { type Cidr, formatCidr } from '@sandlot/protocol';
import { mergeRanges } from '../policy/egress-plan.js';
import type { InstanceLayout } from './layout.js';

/** What the table depends on beside the layout. */
export interface HostRuleOptions {
  /** Interfaces of default routes; none: nothing is forwarded but opened private ranges. */
  uplinks: readonly string[];
  allowPrivate: readonly Cidr[];
  allowHostPorts: readonly number[];
}

/** A transaction that replaces the instance's table, or makes it. */
export function writeHostRules(layout: InstanceLayout, options: HostRuleOptions): string {
  const { hostTable, serviceAddress } = layout;
  const links = `"${layout.linkPrefix}*"`;
  const subnet = formatCidr(layout.subnet);
  const uplinks = `{ ${options.uplinks.map((name) => `"${name}"`).join(', ')} }`;
  const opened = `{ ${mergeRanges(options.allowPrivate).map(formatCidr).join(', ')} }`;
  const when = (condition: boolean, ...lines: string[]): string[] => (condition ? lines : []);
  const hasUplink = options.uplinks.length > 0;
  const hasOpened = options.allowPrivate.length > 0;
  // What a guest's user may meet is refused and not dropped: an answer at once instead of a timeout.
  const refuse = 'reject with icmpx admin-prohibited';
  return lines(
    `table inet ${hostTable}`,
    `delete table inet ${hostTable}`,
    `table inet ${hostTable} {`,
    'chain input {',
    'type filter hook input priority 0; policy accept;',
    `iifname ${links} jump from_sandbox`,
    '}',
    'chain from_sandbox {',
    'ct state established,related accept',
    `ip daddr ${serviceAddress} meta l4proto { tcp, udp } th dport 53 accept`,
    ...when(
      options.allowHostPorts.length > 0,
      `ip daddr ${serviceAddress} tcp dport { ${options.allowHostPorts.join(', ')} } accept`,
    ),
    // The kernel limits the rate of ICMP errors, not of resets.
    `ip saddr ${subnet} meta l4proto tcp reject with tcp reset`,
    `ip saddr ${subnet} meta l4proto { udp, icmp } ${refuse}`,
    'drop',
    '}',
    'chain forward {',
    'type filter hook forward priority 0; policy accept;',
    `iifname ${links} oifname ${links} drop`,
    `iifname ${links} ip daddr { 169.254.0.0/16, 127.0.0.0/8, 224.0.0.0/4, 240.0.0.0/4 } drop`,
    // Uplinks with a small MTU behind routers that swallow "fragmentation needed".
    `iifname ${links} tcp flags & (syn|rst) == syn tcp option maxseg size set rt mtu`,
    ...when(hasUplink, `iifname ${links} oifname ${uplinks} meta nfproto ipv4 accept`),
    ...when(hasOpened, `iifname ${links} ip daddr ${opened} accept`),
    `iifname ${links} meta l4proto tcp reject with tcp reset`,
    `iifname ${links} ${refuse}`,
    `oifname ${links} ct state established,related accept`,
    `oifname ${links} drop`,
    '}',
    'chain rpf {',
    'type filter hook prerouting priority raw; policy accept;',
    `iifname ${links} fib saddr . iif oif missing drop`,
    '}',
    'chain post {',
    'type nat hook postrouting priority srcnat; policy accept;',
    ...when(hasUplink, `oifname ${uplinks} ip saddr ${subnet} masquerade`),
    ...when(hasOpened, `ip saddr ${subnet} ip daddr ${opened} masquerade`),
    '}',
    '}',
  );
}

function lines(...all: string[]): string {
  return `${all.join('\n')}\n`;
}
