import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { containsAddress, formatCidr, formatIpv4, overlaps, parseCidr, parseIpv4 } from './ipv4.js';

const cidr = fc
  .record({ address: fc.nat(0xffffffff), bits: fc.integer({ min: 0, max: 32 }) })
  .map(({ address, bits }) => parseCidr(`${formatIpv4(address)}/${bits}`)!);

describe('IPv4 ranges', () => {
  it('reads what it writes', () => {
    fc.assert(fc.property(fc.nat(0xffffffff), (value) => parseIpv4(formatIpv4(value)) === value));
    fc.assert(
      fc.property(cidr, (range) => {
        expect(parseCidr(formatCidr(range))).toEqual(range);
      }),
    );
  });

  it.each([
    '',
    '1.2.3',
    '1.2.3.256',
    '01.2.3.4',
    '1.2.3.4.5',
    ' 1.2.3.4',
    '1.2.3.4/33',
    '1.2.3.4/',
    '1.2.3.4/08',
    '0x1.2.3.4',
  ])('refuses %j', (text) => expect(parseCidr(text)).toBeUndefined());

  it('two ranges overlap exactly when one holds the base of the other', () => {
    fc.assert(
      fc.property(
        cidr,
        cidr,
        (a, b) => overlaps(a, b) === (containsAddress(a, b.base) || containsAddress(b, a.base)),
      ),
    );
  });
});
