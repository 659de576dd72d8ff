/** How tests let a guest reboot, and see that it has. Used by the tests of reboots and of systemd. */
import type { TestSandbox } from './test-sandbox.js';

/** The system call, for Python: an image need not have a program for it. */
export const rebootProgram = 'import ctypes, os; os.sync(); ctypes.CDLL(None).reboot(0x01234567)';
/** Another one with every boot. */
export const bootIdFile = '/proc/sys/kernel/random/boot_id';

/** Waits until commands work in another boot than this one, for a minute unless `until` knows better. */
export async function untilRebooted(
  sandbox: Pick<TestSandbox, 'out' | 'until'>,
  bootId: string,
): Promise<void> {
  const isAnother = async () => (await sandbox.out(`cat ${bootIdFile}`).catch(() => bootId)) !== bootId;
  await sandbox.until('it has rebooted', isAnother, 60_000, 250);
}
