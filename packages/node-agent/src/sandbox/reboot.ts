/**
 * The steps of a reboot: the guest asked for one, and a new machine goes on with the disk and network of the old one. Owned by
 * `Sandbox`, which starts it when its machine says so, and again for one that an earlier node agent had begun.
 */
import type { SandboxNetwork } from '../network/network.js';
import { bootAgain } from './boot-machine.js';
import type { PausesHost } from './pauses.js';
import { neededSnapshots } from './record.js';
import { rebootProgress } from './record-progress.js';

/** What the sandbox does for its reboots. */
export interface RebootHost extends Omit<PausesHost, 'endMachine'> {
  /** Ends the old machine, whose guest is spoken to no more. */
  endMachine(): Promise<void>;
  /** It has not rebooted too often. */
  admit(): boolean;
  /** Ends a sandbox that has. */
  refuse(): Promise<void>;
}

/** Gives it a new machine. A failure ends the sandbox. */
export async function reboot(host: RebootHost, network: SandboxNetwork): Promise<void> {
  const { record, parts, signal, log } = host;
  const startedMs = performance.now();
  try {
    record.rebooting = true;
    delete record.startCommandRuns;
    delete record.report.exitCode;
    host.change({});
    // On disk before the old machine goes: from then on nothing else says that it was a reboot.
    await host.save();
    await host.endMachine();
    signal.throwIfAborted();
    // It begins with the template's memory again.
    delete record.memory;
    if (!host.admit()) return await host.refuse();
    const order = { network, diskKept: true };
    const started = await bootAgain(record, order, parts, rebootProgress(host), host.machineUndo, signal);
    signal.throwIfAborted();
    delete record.rebooting;
    host.run(started);
    log.info({ ms: Math.round(performance.now() - startedMs) }, 'rebooted');
    await host.save();
    await parts.snapshots.need(record.spec.sandboxId, neededSnapshots(record));
  } catch (error) {
    // Ended by a delete, or let go of: our next start takes it up from its record.
    if (!host.isOurs()) return;
    log.warn({ err: error }, 'reboot failed');
    await host.fail(error);
  }
}
