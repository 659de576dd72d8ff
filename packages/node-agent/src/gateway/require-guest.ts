/** The guest of a sandbox that was just found running; it may have ended since. */
import type { GuestClient } from '../guest/guest-client.js';
import type { Sandbox } from '../sandbox/sandbox.js';
import { GatewayError } from './failures.js';

/** @throws GatewayError 409 */
export function requireGuest(sandbox: Sandbox): GuestClient {
  const { guest } = sandbox;
  if (guest) return guest;
  const state = sandbox.isRebooting ? 'rebooting' : sandbox.report.state;
  throw new GatewayError(409, 'sandbox_not_running', `The sandbox is ${state}.`);
}
