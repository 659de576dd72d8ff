/**
 * What every machine that was restored from a snapshot gets before its first answer: the time, fresh randomness, and, if it
 * is a copy, a new identity. A guest that does not confirm is not used.
 */
import { randomBytes } from 'node:crypto';
import type { GuestFixups } from '@sandlot/protocol';
import type { GuestClient } from '../guest/guest-client.js';
import { machineIdOf } from './boot-machine.js';
import type { SandboxRecord } from './record.js';

/** A guest's first answer may take this long on a host that starts many machines at once, ms. */
const guestDeadlineMs = 60_000;
/** What a call takes is the most by which the clock can be late; one that took longer is made again, warm by then. */
const goodRoundTripMs = 20;
/** The same after a few rounds: a busy host does no better, and 50 ms are promised. */
const fairRoundTripMs = 45;
const fairRound = 4;
const maxRounds = 8;

/** Who a sandbox is from its first generation on. Pure. */
export function identityOf({ spec }: Pick<SandboxRecord, 'spec'>): NonNullable<GuestFixups['identity']> {
  const { sandboxId, hostname, env, secrets } = spec;
  return { sandboxId, hostname, machineId: machineIdOf(sandboxId, 1), env: { ...env, ...secrets } };
}

/**
 * Applies them.
 * @param isNewNetwork its network is not the one that its TCP connections were made in; that of a copy never is
 * @throws GuestUnreachableError, GuestCallError when the guest does not confirm
 */
export async function applyFixups(
  guest: GuestClient,
  identity: GuestFixups['identity'],
  signal: AbortSignal,
  isNewNetwork = identity !== undefined,
): Promise<void> {
  await guest.connect(guestDeadlineMs, signal);
  for (let round = 1; ; round++) {
    const fixups: GuestFixups = {
      timeUnixMs: Date.now(),
      entropyBase64: randomBytes(64).toString('base64'),
      // Once: who was told may have connected again by the next round.
      ...(isNewNetwork && round === 1 ? { abortConnections: true } : {}),
      ...(identity && round === 1 ? { identity } : {}),
    };
    const sentMs = performance.now();
    await guest.fixups(fixups, signal);
    const enoughMs = round < fairRound ? goodRoundTripMs : fairRoundTripMs;
    if (performance.now() - sentMs <= enoughMs || round === maxRounds) return;
  }
}
