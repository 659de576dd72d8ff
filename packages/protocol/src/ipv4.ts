/**
 * IPv4 addresses and CIDR ranges as plain numbers: the arithmetic below the entries of egress lists, and the node
 * agent's policies, address plan and DNS proxy. Pure.
 */

/** A range of addresses; `base` has all bits beyond `bits` cleared. */
export interface Cidr {
  base: number;
  bits: number;
}

/** The address as an unsigned 32-bit number, or undefined if it is not four plain decimal octets. */
export function parseIpv4(text: string): number | undefined {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text);
  if (!match) return undefined;
  let value = 0;
  for (const octet of match.slice(1)) {
    // A leading zero is octal for some programs and decimal for others: refused, so that nobody has to guess.
    if (Number(octet) > 255 || (octet.length > 1 && octet.startsWith('0'))) return undefined;
    value = value * 256 + Number(octet);
  }
  return value;
}

/** Dotted form of an unsigned 32-bit number. */
export function formatIpv4(value: number): string {
  return [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.');
}

/** `a.b.c.d` or `a.b.c.d/n`; host bits are cleared. Undefined if malformed. */
export function parseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf('/');
  const address = parseIpv4(slash < 0 ? text : text.slice(0, slash));
  if (address === undefined) return undefined;
  const bitsText = slash < 0 ? '32' : text.slice(slash + 1);
  if (!/^(0|[1-9]\d?)$/.test(bitsText) || Number(bitsText) > 32) return undefined;
  const bits = Number(bitsText);
  return { base: (address & maskOf(bits)) >>> 0, bits };
}

/** `a.b.c.d/n`, or the plain address for a single one. */
export function formatCidr(cidr: Cidr): string {
  return cidr.bits === 32 ? formatIpv4(cidr.base) : `${formatIpv4(cidr.base)}/${cidr.bits}`;
}

/** Whether every address of `inner` is in `outer`. */
export function containsCidr(outer: Cidr, inner: Cidr): boolean {
  return inner.bits >= outer.bits && containsAddress(outer, inner.base);
}

/** Whether the address is in the range. */
export function containsAddress(range: Cidr, address: number): boolean {
  return (address & maskOf(range.bits)) >>> 0 === range.base;
}

/** Whether the two ranges have an address in common. */
export function overlaps(a: Cidr, b: Cidr): boolean {
  return a.bits <= b.bits ? containsCidr(a, b) : containsCidr(b, a);
}

function maskOf(bits: number): number {
  return bits === 0 ? 0 : (0xffffffff << (32 - bits)) >>> 0;
}
