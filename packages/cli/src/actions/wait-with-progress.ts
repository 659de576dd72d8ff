/** Waits for a sandbox and says on stderr what it waits for. Used by `create` and `run --image`. */
import type { SandboxInfo, Sandlot } from '@sandlot/sdk';
import type { CliContext } from '../context.js';

/** The state once it runs; `'interrupted'` after Ctrl-C. Throws when it ends instead. */
export async function waitWithProgress(
  context: CliContext,
  client: Sandlot,
  id: string,
): Promise<SandboxInfo | 'interrupted'> {
  const abort = new AbortController();
  const unsubscribe = context.onSignal('SIGINT', () => abort.abort());
  let seen = '';
  let told = '';
  try {
    return await client.sandboxes.waitUntilRunning(id, {
      signal: abort.signal,
      onState(info) {
        const text = waitingFor(info);
        // Seen twice, a second apart: what passes at once is not worth a line.
        if (text === seen && text !== told && text !== '') {
          told = text;
          context.out.note(text);
        }
        seen = text;
      },
    });
  } catch (error) {
    if (abort.signal.aborted) return 'interrupted';
    throw error;
  } finally {
    unsubscribe();
  }
}

/** Says what of a sandbox is weaker than was asked for. */
export function noteWarnings(context: CliContext, info: SandboxInfo | undefined): void {
  for (const text of info?.warnings ?? []) context.out.note(`warning: ${text}`);
}

const stageTexts: Record<string, string> = {
  queue: 'waiting for other starts on the host …',
  image: 'getting the image …',
  template: 'making the template for this shape (once) …',
  disk: 'making the disk …',
  network: 'making the network …',
  restore: 'starting the machine …',
  mount: 'starting the machine …',
  ready: 'waiting for the first command …',
};

/** What a sandbox that does not run yet waits for; empty when there is nothing to say. */
export function waitingFor(info: SandboxInfo): string {
  if (info.status === 'RUNNING') return '';
  if (typeof info.queuePosition === 'number')
    return `waiting for room on the host (place ${info.queuePosition}) …`;
  const stage = info.stage ?? (info.pendingImageBuildId ? 'image' : '');
  return stageTexts[stage] ?? '';
}
