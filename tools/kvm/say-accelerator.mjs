// Prints what the VMM driver has chosen on this host, `kvm` or `tcg`, and why. Called by tools/test-kvm.sh.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createQemuDriver } from '../../packages/vmm/dist/index.js';

const stateFolder = mkdtempSync(join(tmpdir(), 'sandlot-kvm-'));
try {
  const assets = new URL('../../.cache/guest', import.meta.url).pathname;
  const driver = createQemuDriver({ assets, stateFolder });
  const { accelerator, reason } = await driver.describe();
  await driver.close();
  console.log(accelerator, reason);
} finally {
  rmSync(stateFolder, { recursive: true, force: true });
}
