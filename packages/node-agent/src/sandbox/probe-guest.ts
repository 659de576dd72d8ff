/** A first command: the agent's own binary, which every guest has. A sandbox runs only when it has worked. */
import type { ExecEnd } from '@sandlot/protocol';
import type { GuestClient } from '../guest/guest-client.js';

/** @throws Error when it did not end well */
export async function probeGuest(guest: GuestClient, signal: AbortSignal): Promise<void> {
  const probe = await guest.exec({ argv: ['@agent-probe'], cwd: '/', user: '0' }, signal);
  let end: ExecEnd | undefined;
  for await (const event of probe.events()) if (event.kind === 'end') end = event.end;
  if (end?.exitCode !== 0)
    throw new Error(`the first command ended with ${end?.exitCode}: ${end?.error ?? ''}`);
}
