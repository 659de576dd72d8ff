/**
 * Runs machines with QEMU: KVM where a guest really starts on it, software emulation elsewhere. Made
 * by the node agent, once. The parts: `argv` (what QEMU is told), `build-template`, `restore`, `adopt`,
 * `qemu-machine` (a running one), `save-snapshot`, `merge-layers`, `restack`, `freeze-disk`.
 */
import type { VmmDriver } from '../driver.js';
import { OomWatch } from '../process/oom-watch.js';
import { adoptMachine } from './adopt.js';
import { buildQemuTemplate } from './build-template.js';
import type { QemuContext } from './context.js';
import { describeHost, type QemuDriverOptions } from './describe-host.js';
import { freezeDisk } from './freeze-disk.js';
import { mergeLayers } from './merge-layers.js';
import { restoreMachine } from './restore.js';

/** A driver for this host. Nothing is started or read before its first use. */
export function createQemuDriver(options: QemuDriverOptions): VmmDriver {
  const oomWatch = new OomWatch();
  let context: Promise<QemuContext> | undefined;
  const ready = (): Promise<QemuContext> => {
    context ??= describeHost(options).catch((error: unknown) => {
      // What was missing may be there the next time.
      context = undefined;
      throw error;
    });
    return context;
  };
  return {
    async describe() {
      const { version, acceleration, reason, fingerprint, snapshotFingerprint } = await ready();
      return {
        name: 'qemu',
        version,
        accelerator: acceleration.kind,
        ...{ reason, fingerprint, snapshotFingerprint },
      };
    },
    async buildTemplate(request, signal) {
      return buildQemuTemplate(await ready(), request, signal);
    },
    async restore(request, signal) {
      return restoreMachine(await ready(), request, oomWatch, signal);
    },
    mergeLayers,
    freezeDisk,
    adopt: (handle) => adoptMachine(handle, oomWatch),
    async close() {
      oomWatch.close();
    },
  };
}
