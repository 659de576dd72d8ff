/** The driver on KVM: what its probe chooses, and the conformance suite, snapshots included. Run by tools/test-kvm.sh. */
import { createQemuDriver } from '@sandlot/vmm';
import { describeSnapshots } from '@sandlot/vmm/conformance/describe-snapshots';
import { describeVmmDriver } from '@sandlot/vmm/conformance/describe-vmm-driver';
import { afterAll, expect, it } from 'vitest';
import { guestAssets, testSlowness } from '../driver/checkout.js';
import { makeStateFolder } from './state-folder.js';

const state = makeStateFolder();
afterAll(() => state.close());

const makeDriver = () => createQemuDriver({ assets: guestAssets, stateFolder: state.of('host') });

it('the probe chooses KVM', async () => {
  const driver = makeDriver();
  const { accelerator, reason } = await driver.describe();
  await driver.close();
  console.log(reason);
  expect([accelerator, reason]).toEqual(['kvm', expect.stringContaining('a guest has started on KVM')]);
});

const options = {
  makeDriver,
  shape: { vcpus: 1, memoryMiB: 256 },
  network: { kind: 'user', restricted: true } as const,
  caseTimeoutMs: 30_000 * testSlowness,
};
describeVmmDriver('qemu on KVM', options);
describeSnapshots('qemu on KVM', options);
