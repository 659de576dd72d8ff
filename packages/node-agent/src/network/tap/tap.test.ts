import { parseCidr } from '@sandlot/protocol';
import { describe, expect, it } from 'vitest';
import { neverReachable } from '../policy/ranges.js';
import { AdmittedNames } from './admitted-names.js';
import { readEgress } from './found-egress.js';
import { writeHostRules } from './host-rules.js';
import { indexInName, layOut, maxIndex, subnetOfSlot } from './layout.js';
import { writeNamespaceRules, writeTap } from './namespace-rules.js';

describe('layout', () => {
  it('fits the kernel, and no two slots share an address or a uid', () => {
    const one = layOut('ab12', subnetOfSlot(0), 2_000_000);
    const two = layOut('cd34', subnetOfSlot(1), 2_000_000);
    expect(one.at(maxIndex).link.length).toBeLessThanOrEqual(15);
    expect(one.at(maxIndex).uid).toBeLessThan(two.at(1).uid);
    expect(one.at(1)).toMatchObject({
      namespace: 'slab12-1',
      link: 'slab12v1',
      address: '10.77.0.1',
      uid: 2_000_001,
    });
    expect(two.at(1).address).toBe('10.77.16.1');
    expect(one.serviceAddress).toBe('10.77.15.254');
    expect(layOut('0000', subnetOfSlot(15), 1).serviceAddress).toBe('10.77.255.254');
    expect(layOut('0000', parseCidr('172.20.0.0/20')!, 2_000_000).at(1).uid).toBeGreaterThan(
      two.at(maxIndex).uid,
    );
  });

  it('refuses what it cannot name', () => {
    expect(() => layOut('xyz', subnetOfSlot(0), 1)).toThrow('four hex digits');
    expect(() => layOut('ab12', parseCidr('10.77.0.0/16')!, 1)).toThrow('/20');
    expect(() => layOut('ab12', subnetOfSlot(0), 1).at(0)).toThrow('index');
  });

  it('knows its own names from others', () => {
    expect(indexInName('slab12-7', 'slab12-')).toBe(7);
    for (const name of ['slab12-', 'slab12-07', 'slab12-7x', 'slab13-7', 'slab12-9999', 'xslab12-7']) {
      expect(indexInName(name, 'slab12-')).toBeUndefined();
    }
  });
});

describe('rule sets', () => {
  const layout = layOut('ab12', subnetOfSlot(2), 2_000_000);

  it('of the host name only this instance', () => {
    const text = writeHostRules(layout, { uplinks: ['eth0'], allowPrivate: [], allowHostPorts: [] });
    expect(text).toContain('oifname { "eth0" } ip saddr 10.77.32.0/20 masquerade');
    for (const name of text.match(/"[^"]*"/g)!) expect(['"slab12v*"', '"eth0"']).toContain(name);
    expect(text).not.toContain('tcp dport {');
  });

  it('of the host forward nothing without an uplink', () => {
    const text = writeHostRules(layout, { uplinks: [], allowPrivate: [], allowHostPorts: [] });
    expect(text).not.toContain('masquerade');
    expect(text.match(/forward priority 0[^}]*/)![0]).not.toMatch(/iifname "slab12v\*" [^\n]*accept/);
  });

  it('of a namespace begin with "nothing" and give the tap to its machine alone', () => {
    const names = layout.at(5);
    const { serviceAddress } = layout;
    const text = writeNamespaceRules(names, {
      serviceAddress,
      never: neverReachable,
      allowHostPorts: [],
      maxConnections: 9,
    });
    expect(text.match(/chain egress \{([^}]*)\}/)![1]!.trim()).toBe(
      'reject with icmpx admin-prohibited comment "plan none"',
    );
    expect(text).toContain('snat ip to 10.77.32.5');
    expect(writeTap(names, serviceAddress)).toContain(
      `tuntap add dev tap0 mode tap vnet_hdr user ${names.uid}`,
    );
  });
});

describe('admitted names', () => {
  it('renews only what would end too soon, and forgets', () => {
    let now = 0;
    const names = new AdmittedNames([], () => now);
    const fresh = names.select('a.test', [{ address: '1.1.1.1', ttl: 5 }]);
    expect(fresh).toEqual([{ address: '1.1.1.1', timeout: 90 }]);
    names.note('a.test', fresh);
    now = 29_000;
    expect(names.select('a.test', [{ address: '1.1.1.1', ttl: 5 }])).toEqual([]);
    now = 31_000;
    expect(names.select('a.test', [{ address: '1.1.1.1', ttl: 5 }])).toEqual([
      { address: '1.1.1.1', timeout: 90 },
    ]);
    expect(names.select('a.test', [{ address: '1.1.1.1', ttl: 1e9 }])[0]!.timeout).toBe(24 * 3600 + 60);
    expect(names.list()).toEqual([{ name: 'a.test', address: '1.1.1.1', timeout: 59 }]);
    names.retain((name) => name !== 'a.test');
    expect(names.list()).toEqual([]);
  });
});

describe('what is found in a namespace', () => {
  const rule = (comment: string) => ({ rule: { chain: 'egress', comment } });

  it('is the mark, the sets and their addresses', () => {
    const elem = [
      { elem: { val: '1.2.3.4', expires: 50, comment: 'a.test' } },
      { elem: { val: '5.6.7.8', expires: 50 } },
    ];
    expect(
      readEgress({
        nftables: [{ set: { name: 'names0', elem } }, { set: { name: 'names1' } }, rule('plan 12ab')],
      }),
    ).toEqual({
      digest: '12ab',
      setNames: ['names0', 'names1'],
      admissions: [{ name: 'a.test', address: '1.2.3.4', timeout: 50 }],
    });
  });

  it('is nothing in a half-made one', () => {
    for (const listing of [undefined, {}, { nftables: [] }, { nftables: [rule('other')] }])
      expect(readEgress(listing)).toBeUndefined();
  });
});
