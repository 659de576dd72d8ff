import { describe, expect, it } from 'vitest';
import { openUserNetworks } from './network.js';

const all = { generation: 0, allowlist: null, denylist: [] };
const none = { generation: 0, allowlist: [], denylist: null };

describe('user networks', () => {
  it('are restricted until the operator opens them', async () => {
    const networks = openUserNetworks();
    const network = await networks.acquire();
    await network.applyPolicy(all);
    expect(network.machine).toEqual({ kind: 'user', restricted: true });
  });

  it.each([
    [undefined, 'The node agent is not root', 'run as root'],
    ['not-root', 'The node agent is not root', 'run as root'],
    ['no-tun', 'There is no /dev/net/tun', 'modprobe tun'],
  ] as const)('without taps (%s) say why, and what to do', (because, what, instead) => {
    const warningOf = (rootlessNetwork: boolean) =>
      openUserNetworks({ rootlessNetwork, ...(because ? { because } : {}) }).warnings()[0];
    expect(warningOf(false)).toContain(what);
    expect(warningOf(false)).toContain(instead);
    expect(warningOf(false)).toContain('--rootless-network');
    expect(warningOf(true)).toContain(what);
    expect(warningOf(true)).toContain('no list of hosts can be enforced');
  });

  it('of fake machines promise nothing', () => {
    expect(openUserNetworks({ because: 'fake-machines' }).warnings()).toEqual([
      expect.stringContaining('fake driver'),
    ]);
  });

  it('follow the policy in force when the machine starts, and refuse a change after it', async () => {
    const networks = openUserNetworks({ rootlessNetwork: true });
    expect((await networks.acquire()).machine).toMatchObject({ restricted: true });
    const network = await networks.acquire();
    await network.applyPolicy(all);
    expect(network.machine).toMatchObject({ restricted: false });
    await network.applyPolicy(all);
    await expect(network.applyPolicy(none)).rejects.toMatchObject({ code: 'unsupported' });
    expect(network.machine).toMatchObject({ restricted: false });
  });

  it('know no lists', async () => {
    const network = await openUserNetworks({ rootlessNetwork: true }).acquire();
    const list = { generation: 0, allowlist: ['a.test'], denylist: null };
    await expect(network.applyPolicy(list)).rejects.toMatchObject({ code: 'unsupported' });
  });

  it('give each machine of a root without taps an identity of its own', async () => {
    const networks = openUserNetworks({ firstUid: 5_000_000 });
    const uidOf = async () => (await networks.acquire()).runAs?.uid;
    expect((await networks.adopt({ kind: 'user', index: 1 }))?.runAs).toEqual({
      uid: 5_000_001,
      gid: 5_000_001,
    });
    const first = await networks.acquire();
    expect([first.runAs?.uid, await uidOf()]).toEqual([5_000_000, 5_000_002]);
    await first.release();
    expect(await uidOf()).toBe(5_000_000);
    expect((await openUserNetworks().acquire()).runAs).toBeUndefined();
  });

  it('are released once: a second release takes nothing from whoever has the number by then', async () => {
    const networks = openUserNetworks({ firstUid: 5_000_000 });
    const first = await networks.acquire();
    await first.release();
    expect((await networks.acquire()).runAs?.uid).toBe(5_000_000);
    await first.release();
    expect((await networks.acquire()).runAs?.uid).toBe(5_000_001);
  });

  it('are adopted with the policy of their record', async () => {
    const networks = openUserNetworks({ rootlessNetwork: true });
    const network = (await networks.adopt({ kind: 'user', index: 3 }))!;
    await network.applyPolicy(none);
    await expect(network.applyPolicy(all)).rejects.toMatchObject({ code: 'unsupported' });
    expect(await networks.adopt({ kind: 'tap', index: 1 })).toBeUndefined();
  });
});
