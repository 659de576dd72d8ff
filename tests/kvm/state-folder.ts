/**
 * Where the driver keeps what it found out of KVM once a boot. One for all files of `make test-kvm` where SANDLOT_KVM_STATE
 * names it: in an emulated machine a probe takes a minute. Used by the tests of this folder.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Makes it. */
export function makeStateFolder(): { of(cpuModel: string): string; close(): void } {
  const shared = process.env['SANDLOT_KVM_STATE'];
  const folder = shared ?? mkdtempSync(join(tmpdir(), 'sandlot-kvm-state-'));
  return {
    of: (cpuModel) => join(folder, cpuModel),
    close() {
      if (shared === undefined) rmSync(folder, { recursive: true, force: true });
    },
  };
}
