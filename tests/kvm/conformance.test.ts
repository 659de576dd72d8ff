/** The driver on KVM: what its probe chooses, and the conformance suite, snapshots included. Run by tools/test-kvm.sh. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createQemuDriver } from '@sandlot/vmm';
import { describeSnapshots } from '@sandlot/vmm/conformance/describe-snapshots';
import { describeVmmDriver } from '@sandlot/vmm/conformance/describe-vmm-driver';
import { afterAll, expect, it } from 'vitest';
import { guestAssets, testSlowness } from '../driver/checkout.js';

const stateFolder = mkdtempSync(join(tmpdir(), 'sandlot-vmm-state-'));
afterAll(() => rmSync(stateFolder, { recursive: true, force: true }));

const makeDriver = () => createQemuDriver({ assets: guestAssets, stateFolder });

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
