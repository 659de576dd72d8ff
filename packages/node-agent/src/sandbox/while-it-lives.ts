/** Work on the guest of a machine that may end meanwhile. Used by starts, reboots and resumes. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Machine, MachineEndedError } from '@sandlot/vmm';
import { GuestUnreachableError } from '../guest/channel.js';

const endIsKnownMs = 1_000;

/**
 * The result of work on a machine's guest. Fails as soon as the machine ends, with its cause: work on its guest would wait for an answer until its own
 * deadline. When the guest cannot be reached although its machine runs, its console says more than we can.
 */
export async function whileItLives<T>(machine: Machine, work: () => Promise<T>): Promise<T> {
  const ended = machine.ended.then((end): never => {
    throw new MachineEndedError(end);
  });
  const reset = new Promise<never>((_, reject) => {
    machine.onGuestReset(() =>
      reject(
        new MachineEndedError({ cause: 'guest-shutdown', detail: 'the guest rebooted before it was ready' }),
      ),
    );
  });
  try {
    return await Promise.race([work(), ended, reset]);
  } catch (cause) {
    if (!(cause instanceof GuestUnreachableError)) throw cause;
    // The connection breaks a moment before the end of the process is known.
    await Promise.race([ended, sleep(endIsKnownMs, undefined, { ref: false })]);
    const console = (await machine.readSerialTail(1000).catch(() => '')).trim();
    const words = console === '' ? 'its console is empty' : `the end of its console: ${console}`;
    throw new GuestUnreachableError(`${cause.message}; ${words}`, { cause });
  }
}
