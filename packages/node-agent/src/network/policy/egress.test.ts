import {
  type Cidr,
  containsAddress,
  containsCidr,
  EgressEntryError,
  formatIpv4,
  overlaps,
  parseCidr,
  parseIpv4,
} from '@sandlot/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type EgressSurroundings,
  mergeRanges,
  planEgress,
  setsForName,
  writeAdmissions,
  writeEgress,
} from './egress-plan.js';
import { matchesName, parseEgressPolicy } from './egress-policy.js';
import { isPrivate, mayBeAdmitted, neverReachable } from './ranges.js';

const cidr = fc
  .record({ address: fc.nat(0xffffffff), bits: fc.integer({ min: 0, max: 32 }) })
  .map(({ address, bits }) => parseCidr(`${formatIpv4(address)}/${bits}`)!);

const around: EgressSurroundings = {
  serviceAddress: '10.77.15.254',
  allowHostPorts: [],
  allowPrivate: [],
  never: neverReachable,
};

function plan(
  lists: { allowlist?: string[] | null; denylist?: string[] | null },
  more: Partial<EgressSurroundings> = {},
) {
  const policy = { allowlist: lists.allowlist ?? null, denylist: lists.denylist ?? null };
  return planEgress(parseEgressPolicy(policy), { ...around, ...more });
}

describe('names and ranges', () => {
  it('matches names by whole labels', () => {
    const wildcard = { name: 'allowed.test', wildcard: true };
    expect(matchesName('A.allowed.TEST.', wildcard)).toBe(true);
    expect(matchesName('a.b.allowed.test', wildcard)).toBe(true);
    for (const name of ['allowed.test', 'notallowed.test', '.allowed.test', 'allowed.test.evil.test']) {
      expect(matchesName(name, wildcard)).toBe(false);
    }
    expect(matchesName('exact.test', { name: 'exact.test', wildcard: false })).toBe(true);
    expect(matchesName('sub.exact.test', { name: 'exact.test', wildcard: false })).toBe(false);
  });

  it('merging drops what is covered and loses nothing', () => {
    fc.assert(
      fc.property(fc.array(cidr, { maxLength: 20 }), (ranges) => {
        const merged = mergeRanges(ranges);
        for (const range of ranges) expect(merged.some((outer) => containsCidr(outer, range))).toBe(true);
        merged.forEach((a, i) => {
          merged.forEach((b, j) => {
            expect(i !== j && overlaps(a, b)).toBe(false);
          });
        });
      }),
    );
  });
});

describe('policies', () => {
  it.each([
    [{ allowlist: null, denylist: [] }, 'all'],
    [{ allowlist: [], denylist: null }, 'none'],
    [{ allowlist: [], denylist: [] }, 'none'],
    [{ allowlist: ['a.test'], denylist: null }, 'allow'],
    [{ allowlist: ['a.test'], denylist: [] }, 'allow'],
    [{ allowlist: null, denylist: ['a.test'] }, 'deny'],
  ])('%j is %s', (policy, mode) => expect(parseEgressPolicy(policy).mode).toBe(mode));

  it.each([
    { allowlist: null, denylist: null },
    { allowlist: ['a.test'], denylist: ['b.test'] },
    { allowlist: [], denylist: ['b.test'] },
    { allowlist: ['127.0.0.1'], denylist: null },
    { allowlist: ['169.254.169.254:80'], denylist: null },
    { allowlist: null, denylist: ['a.test:80'] },
  ])('refuses %j', (policy) => {
    expect(() => parseEgressPolicy(policy)).toThrow(expect.objectContaining({ code: 'invalid-policy' }));
  });

  it('says which entry is at fault', () => {
    expect(() => parseEgressPolicy({ allowlist: ['a.test', 'a.test/x'], denylist: null })).toThrow(
      expect.objectContaining({
        code: 'invalid-policy',
        message: 'egress policy refused: "a.test/x": a path is not allowed',
        cause: expect.any(EgressEntryError),
      }),
    );
  });

  it('refuses more entries than a namespace should hold', () => {
    const allowlist = Array.from({ length: 257 }, (_, n) => `a${n}.test`);
    expect(() => parseEgressPolicy({ allowlist, denylist: null })).toThrow('at most 256');
    expect(parseEgressPolicy({ allowlist: allowlist.slice(1), denylist: null }).mode).toBe('allow');
  });

  it('none accepts nothing', () => {
    expect(plan({ allowlist: [] }).rules).toEqual([]);
  });

  it('all and deny refuse private space, after what the operator opened', () => {
    const { rules } = plan(
      { denylist: ['1.2.3.4:80'] },
      { allowPrivate: [parseCidr('10.5.0.0/16')!], allowHostPorts: [7070] },
    );
    expect(rules).toEqual([
      'meta l4proto { tcp, udp } th dport 80 ip daddr { 1.2.3.4 } reject with icmpx admin-prohibited',
      'ip daddr 10.77.15.254 tcp dport { 7070 } accept',
      'ip daddr { 10.5.0.0/16 } accept',
      expect.stringMatching(/^ip daddr \{ 10.0.0.0\/8, .* \} reject/),
      'accept',
    ]);
  });

  it('a list ends in no general accept, and opens private space only by entries inside it', () => {
    const { rules } = plan({ allowlist: ['0.0.0.0/0', '10.5.0.0/16', 'a.test', 'b.test:443'] });
    expect(rules).toEqual([
      'ip daddr { 10.5.0.0/16 } accept',
      'ip daddr @names0 accept',
      'meta l4proto { tcp, udp } th dport 443 ip daddr @names1 accept',
      expect.stringMatching(/^ip daddr \{ 10.0.0.0\/8, .* \} reject/),
      'ip daddr { 0.0.0.0/0 } accept',
    ]);
  });

  it('puts a name into the sets of its entries', () => {
    const planned = plan({ allowlist: ['*.a.test', 'x.a.test:80', 'b.test:443'] });
    expect(setsForName(planned, 'x.A.test.')).toEqual(['names0', 'names1']);
    expect(setsForName(planned, 'y.a.test')).toEqual(['names0']);
    expect(setsForName(planned, 'b.test')).toEqual(['names2']);
    expect(setsForName(planned, 'a.test')).toEqual([]);
  });

  it('has one mark for equal plans and another for others', () => {
    expect(plan({ allowlist: ['a.test'] }).digest).toBe(plan({ allowlist: ['A.TEST.'] }).digest);
    expect(plan({ allowlist: ['a.test'] }).digest).not.toBe(plan({ allowlist: ['a.test:80'] }).digest);
    expect(plan({ denylist: [] }).digest).not.toBe(plan({ allowlist: [] }).digest);
    expect(plan({ denylist: ['a.test'] }).digest).not.toBe(plan({ denylist: [] }).digest);
  });

  it('writes one transaction that ends in a refusal', () => {
    const planned = plan({ allowlist: ['a.test'] });
    const kept = [{ setName: 'names0', address: '1.2.3.4', timeout: 40, name: 'a.test' }];
    const lines = writeEgress(planned, ['names0', 'names1'], kept).trimEnd().split('\n');
    expect(lines.slice(0, 5)).toEqual([
      'flush chain inet sl egress',
      'delete set inet sl names0',
      'delete set inet sl names1',
      'add set inet sl names0 { type ipv4_addr; flags timeout; size 4096; }',
      'add element inet sl names0 { 1.2.3.4 timeout 40s comment "a.test" }',
    ]);
    expect(lines.at(-1)).toBe(
      `add rule inet sl egress reject with icmpx admin-prohibited comment "plan ${planned.digest}"`,
    );
  });

  it('leaves out a comment that nft would not take', () => {
    const one = (name: string) =>
      writeAdmissions([{ setName: 'names0', address: '1.2.3.4', timeout: 9, name }]);
    expect(one('a.test')).toContain('comment "a.test"');
    expect(one('a"; drop.test')).not.toContain('comment');
    expect(one(`${'a.'.repeat(64)}test`)).not.toContain('comment');
  });

  it('never admits a forbidden address for a name, and a private one only if opened', () => {
    const reach = (opened: Cidr[]) => ({ never: neverReachable, opened });
    fc.assert(
      fc.property(fc.nat(0xffffffff), cidr, (address, opened) => {
        if (!mayBeAdmitted(address, reach([opened]))) return;
        expect(neverReachable.some((range) => containsAddress(range, address))).toBe(false);
        if (isPrivate({ base: address, bits: 32 })) expect(containsAddress(opened, address)).toBe(true);
      }),
    );
    expect(mayBeAdmitted(parseIpv4('10.77.3.4')!, reach([parseCidr('10.0.0.0/8')!]))).toBe(false);
    expect(mayBeAdmitted(parseIpv4('10.5.3.4')!, reach([parseCidr('10.5.0.0/16')!]))).toBe(true);
  });
});
