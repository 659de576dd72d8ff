/**
 * Runs the conformance suite on both drivers: fake with the guest agent built for tests, qemu with what
 * `make build` made in .cache/guest. SANDLOT_TEST_AGENT and SANDLOT_TEST_GUEST name others.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, it } from 'vitest';
import { createFakeDriver } from '../fake/fake-driver.js';
import { createQemuDriver } from '../qemu/qemu-driver.js';
import { describeSnapshots } from './describe-snapshots.js';
import { describeVmmDriver } from './describe-vmm-driver.js';

const checkout = fileURLToPath(new URL('../../../../', import.meta.url));
const agentBinary =
  process.env['SANDLOT_TEST_AGENT'] ??
  join(checkout, 'guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent');
const assets = process.env['SANDLOT_TEST_GUEST'] ?? join(checkout, '.cache/guest');
// Made by the first case that needs it: where all are skipped nobody would remove it.
let stateFolder: string | undefined;
afterAll(() => {
  if (stateFolder !== undefined) rmSync(stateFolder, { recursive: true, force: true });
});

const network = { kind: 'user', restricted: true } as const;

if (existsSync(agentBinary)) {
  const fake = {
    makeDriver: () => createFakeDriver({ agentBinary }),
    shape: { vcpus: 1, memoryMiB: 256 },
    network,
    caseTimeoutMs: 30_000,
  };
  describeVmmDriver('fake', fake);
  describeSnapshots('fake', fake);
} else skipBecause(`the guest agent is not built (${agentBinary}); run make build`);

if (existsSync(join(assets, 'manifest.json'))) {
  const qemu = {
    // What the probe says is tested apart; here it would only cost seconds.
    makeDriver: () => {
      stateFolder ??= mkdtempSync(join(tmpdir(), 'sandlot-vmm-state-'));
      return createQemuDriver({ assets, stateFolder, kvm: 'never' });
    },
    shape: { vcpus: 1, memoryMiB: 256 },
    network,
    caseTimeoutMs: 60_000,
  };
  describeVmmDriver('qemu', qemu);
  describeSnapshots('qemu', qemu);
} else skipBecause(`the guest's kernel is not built (${assets}); run make build`);

function skipBecause(reason: string): void {
  describe('VMM driver', () => {
    it.skip(reason, () => {});
  });
}
