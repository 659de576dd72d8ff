/**
 * Names, addresses and uids of one instance: all follow from its id, its /20 and an index. Pure; used by
 * everything in this folder.
 */

import { type Cidr, containsCidr, formatIpv4, parseCidr } from '@sandlot/protocol';
import { NetworkError } from '../contract.js';
import { instanceRange } from '../policy/ranges.js';

/** Bits of an instance's subnet: 4,096 addresses. */
export const subnetBits = 20;

/** How many subnets there are in the range that instances share. */
export const slotCount = 2 ** (subnetBits - instanceRange.bits);

/** Indices of networks go from 1 to this; the top of the subnet is the service address. */
export const maxIndex = 4000;

/** What the node knows one sandbox's network by. */
export interface NetworkNames {
  index: number;
  /** Name of the namespace for `ip netns`. */
  namespace: string;
  netnsPath: string;
  /** Host end of the pair of links. */
  link: string;
  /** Address of the sandbox on the node. */
  address: string;
  /** User and group of its VMM process. */
  uid: number;
}

/** The plan of one instance's addresses and names. */
export interface InstanceLayout {
  instanceId: string;
  subnet: Cidr;
  /** Where the DNS proxy and opened host ports are reached. */
  serviceAddress: string;
  /** nft table on the host. */
  hostTable: string;
  namespacePrefix: string;
  linkPrefix: string;
  at(index: number): NetworkNames;
}

/** Where `ip netns` keeps its names. */
export const netnsFolder = '/run/netns';

/** Makes the layout. Throws {@link NetworkError} for a bad id or subnet. */
export function layOut(instanceId: string, subnet: Cidr, firstUid: number): InstanceLayout {
  if (!/^[0-9a-f]{4}$/.test(instanceId)) {
    throw new NetworkError('setup-failed', `instance id '${instanceId}' is not four hex digits`);
  }
  if (subnet.bits !== subnetBits) {
    throw new NetworkError('setup-failed', `the subnet must be a /${subnetBits}; give one of 10.77.0.0/16`);
  }
  // Uids follow from the place of the subnet, so two instances with different subnets never share one.
  const slot = containsCidr(instanceRange, subnet)
    ? (subnet.base - instanceRange.base) >>> (32 - subnetBits)
    : slotCount + ((subnet.base >>> (32 - subnetBits)) & (slotCount - 1));
  const namespacePrefix = `sl${instanceId}-`;
  const linkPrefix = `sl${instanceId}v`;
  return {
    instanceId,
    subnet,
    serviceAddress: formatIpv4(subnet.base + 4094),
    hostTable: `slhost${instanceId}`,
    namespacePrefix,
    linkPrefix,
    at: (index) => {
      if (!Number.isInteger(index) || index < 1 || index > maxIndex) {
        throw new NetworkError('setup-failed', `network index ${index} is not from 1 to ${maxIndex}`);
      }
      return {
        index,
        namespace: `${namespacePrefix}${index}`,
        netnsPath: `${netnsFolder}/${namespacePrefix}${index}`,
        link: `${linkPrefix}${index}`,
        address: formatIpv4(subnet.base + index),
        uid: firstUid + slot * 4096 + index,
      };
    },
  };
}

/** The subnet of a slot of the shared range. */
export function subnetOfSlot(slot: number): Cidr {
  return { base: (instanceRange.base + slot * 2 ** (32 - subnetBits)) >>> 0, bits: subnetBits };
}

/** Parses an operator's `--subnet`. */
export function parseSubnet(text: string): Cidr {
  const subnet = parseCidr(text);
  if (!subnet || subnet.bits !== subnetBits) {
    throw new NetworkError(
      'setup-failed',
      `subnet '${text}' is not a /${subnetBits} CIDR like 10.77.16.0/${subnetBits}`,
    );
  }
  return subnet;
}

/** The index in a name with this prefix, or undefined if the name is not one of the instance's. */
export function indexInName(name: string, prefix: string): number | undefined {
  const rest = name.startsWith(prefix) ? name.slice(prefix.length) : '';
  return /^[1-9]\d{0,3}$/.test(rest) && Number(rest) <= maxIndex ? Number(rest) : undefined;
}
