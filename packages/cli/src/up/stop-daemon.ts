/** Ends a daemon: asks, waits, and only then insists. Used by `up --restart`, by the foreground and by `down`. */
import { hasEnded, isAlive, readReadyFile, signalProcess } from './process-identity.js';

/** Time after SIGTERM before SIGKILL. */
const termMs = 30_000;

/** How it went; `absent` when it did not run. */
export type StopOutcome = 'absent' | 'ended' | 'killed';

/** Ends the process of a ready file. `ask` may end it more gently than SIGTERM, within `askMs`. */
export async function stopDaemon(
  readyFile: string,
  ask?: { by: () => Promise<unknown>; withinMs: number },
): Promise<StopOutcome> {
  const ready = readReadyFile(readyFile);
  if (!isAlive(ready)) return 'absent';
  if (ask) {
    // One that does not answer is told by signal below.
    const asked = await ask.by().then(
      () => true,
      () => false,
    );
    if (asked && (await hasEnded(ready, ask.withinMs))) return 'ended';
  }
  signalProcess(ready, 'SIGTERM');
  if (await hasEnded(ready, termMs)) return 'ended';
  signalProcess(ready, 'SIGKILL');
  await hasEnded(ready, 5_000);
  return 'killed';
}
