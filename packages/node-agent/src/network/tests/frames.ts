/** Ethernet frames as a guest that forges them would send, for `isolation.test.ts`. */
import { guestAddresses } from '../contract.js';

/** Fields of a forged frame; what is left out is as the guest's own. */
export interface ForgedFrame {
  sourceMac?: string;
  targetMac?: string;
  source?: string;
  target?: string;
  /** IP protocol: 17 UDP (default), 1 ICMP echo, 47 GRE. */
  protocol?: number;
  port?: number;
}

/** An IPv4 frame; UDP with one byte unless told. */
export function ipv4Frame(fields: ForgedFrame): Buffer {
  const payload = payloadOf(fields.protocol ?? 17, fields.port ?? 9000);
  const header = Buffer.alloc(20);
  header.writeUInt8(0x45, 0);
  header.writeUInt16BE(20 + payload.length, 2);
  header.writeUInt8(64, 8);
  header.writeUInt8(fields.protocol ?? 17, 9);
  addressBytes(fields.source ?? guestAddresses.address).copy(header, 12);
  addressBytes(fields.target ?? '198.51.100.1').copy(header, 16);
  header.writeUInt16BE(checksum(header), 10);
  return ethernet(fields, 0x0800, Buffer.concat([header, payload]));
}

/** An ARP reply that claims an address. */
export function arpFrame(claimed: string, mac: string, fields: ForgedFrame = {}): Buffer {
  const body = Buffer.alloc(28);
  body.writeUInt16BE(1, 0);
  body.writeUInt16BE(0x0800, 2);
  body.writeUInt8(6, 4);
  body.writeUInt8(4, 5);
  body.writeUInt16BE(2, 6);
  macBytes(mac).copy(body, 8);
  addressBytes(claimed).copy(body, 14);
  macBytes(guestAddresses.gatewayMac).copy(body, 18);
  addressBytes(guestAddresses.gateway).copy(body, 24);
  return ethernet(fields, 0x0806, body);
}

/** Any other protocol: IPv6 (0x86dd), VLAN (0x8100), LLDP (0x88cc). */
export function otherFrame(etherType: number): Buffer {
  return ethernet({}, etherType, Buffer.alloc(60, 0x60));
}

function ethernet(fields: ForgedFrame, etherType: number, payload: Buffer): Buffer {
  const type = Buffer.alloc(2);
  type.writeUInt16BE(etherType, 0);
  const target = macBytes(fields.targetMac ?? guestAddresses.gatewayMac);
  return Buffer.concat([target, macBytes(fields.sourceMac ?? guestAddresses.guestMac), type, payload]);
}

function payloadOf(protocol: number, port: number): Buffer {
  if (protocol === 17) {
    const udp = Buffer.alloc(9);
    udp.writeUInt16BE(40_000, 0);
    udp.writeUInt16BE(port, 2);
    udp.writeUInt16BE(9, 4);
    return udp;
  }
  const other = Buffer.alloc(8);
  if (protocol === 1) {
    other.writeUInt8(8, 0);
    other.writeUInt16BE(checksum(other), 2);
  }
  return other;
}

function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

function macBytes(mac: string): Buffer {
  return Buffer.from(mac.replaceAll(':', ''), 'hex');
}

function addressBytes(address: string): Buffer {
  return Buffer.from(address.split('.').map(Number));
}
