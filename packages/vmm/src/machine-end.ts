/** Why a machine ended, decided from what was seen of it. Pure; used by both drivers. */
import type { MachineEnd } from './driver.js';
import type { ProcessExit } from './process/vmm-process.js';

/** What is known when the process is gone. */
export interface EndEvidence {
  /** `end()` was called before. */
  requested: boolean;
  /** Reason of QEMU's SHUTDOWN event, if the guest caused one. */
  guestReason?: string | undefined;
  /** Undefined for a process that is not our child. */
  exit?: ProcessExit | undefined;
  serialTail: string;
  stderrTail: string;
  /** The host's kernel has just killed for want of memory. */
  hostKilledForMemory: boolean;
}

/** What a kernel prints when it panics. */
export const panicLine = /Kernel panic - not syncing[^\r\n]*/;

/** The cause and a line for the log. */
export function explainEnd(evidence: EndEvidence): MachineEnd {
  const { exit, serialTail, stderrTail, guestReason } = evidence;
  if (evidence.requested) return { cause: 'requested', detail: 'ended on request' };
  const panic = panicLine.exec(serialTail)?.[0];
  if (guestReason !== undefined) {
    if (guestReason === 'guest-panic' || panic !== undefined) {
      return { cause: 'guest-panic', detail: panic ?? "the guest's kernel panicked" };
    }
    return { cause: 'guest-shutdown', detail: 'the guest powered itself off' };
  }
  const stderr = lastLines(stderrTail);
  if (exit === undefined || exit.signal === 'SIGKILL') {
    if (evidence.hostKilledForMemory) {
      return {
        cause: 'host-out-of-memory',
        detail: "the host ran out of memory and its kernel killed the machine's process",
      };
    }
    if (exit === undefined && stderr !== '') return { cause: 'vmm-error', detail: stderr };
    return { cause: 'killed', detail: "the machine's process was killed from outside" };
  }
  if (exit.signal === 'SIGTERM' || exit.signal === 'SIGINT' || exit.signal === 'SIGHUP') {
    return { cause: 'killed', detail: `the machine's process was ended from outside by ${exit.signal}` };
  }
  const how =
    exit.signal === null
      ? `the machine's process ended with status ${exit.code}`
      : `the machine's process crashed (${exit.signal})`;
  // QEMU takes SIGTERM as a request to quit, ends with 0, and says who sent it.
  if (exit.code === 0 && /terminating on signal/.test(stderr)) return { cause: 'killed', detail: stderr };
  return { cause: 'vmm-error', detail: stderr === '' ? how : `${how}: ${stderr}` };
}

function lastLines(text: string): string {
  return text.trim().split('\n').slice(-5).join('\n').trim();
}
