/** What the QEMU driver has found out about this host once, and every operation of it needs. */
import type { Acceleration } from './argv.js';
import type { GuestAssets } from './assets.js';

/** Settled facts; see `describe-host.ts`, which makes it. */
export interface QemuContext {
  binary: string;
  version: string;
  assets: GuestAssets;
  acceleration: Acceleration;
  /** Why this acceleration. */
  reason: string;
  /** Group of /dev/kvm, where KVM is used and the device is open to its group only. */
  kvmGid: number | undefined;
  /** The host's kernel never promises more memory than it has (vm.overcommit_memory is 2). */
  strictMemory: boolean;
  fingerprint: string;
  snapshotFingerprint: string;
}
