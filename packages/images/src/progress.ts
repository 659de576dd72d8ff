/** Progress for listeners that cost something: a channel between processes, a client's connection. */
import type { StoreProgress } from './store.js';

/** Tells of a new stage at once, and within one at most once in `intervalMs`. */
export function sparingly(
  intervalMs: number,
  tell: (progress: StoreProgress) => void,
): (progress: StoreProgress) => void {
  let lastMs = Number.NEGATIVE_INFINITY;
  let lastStage = '';
  return (progress) => {
    const now = performance.now();
    if (progress.stage === lastStage && now - lastMs < intervalMs) return;
    lastMs = now;
    lastStage = progress.stage;
    tell(progress);
  };
}
