/**
 * From a template to a machine that runs a sandbox: restore, mount, ready. The end of every start (`start-steps.ts`) and of a
 * rollback to a disk (`rollback.ts`), and all there is to a reboot, which begins with the disk that the machine before has left (`sandbox.ts`).
 */
import { createHash, randomBytes } from 'node:crypto';
import type { ExecStart, GuestInit, NodeSandboxSpec } from '@sandlot/protocol';
import type { Machine, Template } from '@sandlot/vmm';
import { GuestCallError, type GuestClient } from '../guest/guest-client.js';
import { guestAddresses, type SandboxNetwork } from '../network/network.js';
import { firstPrograms } from './init-program.js';
import { probeGuest } from './probe-guest.js';
import type { BootFacts, SandboxRecord } from './record.js';
import { limitAndConnect, restoreMachine } from './restore-machine.js';
import {
  type StartedParts,
  type StartParts,
  type StartProgress,
  timed,
  untilAborted,
} from './start-parts.js';
import type { UndoStack } from './undo-stack.js';
import { ViewRefusedError } from './view-refused.js';
import { whileItLives } from './while-it-lives.js';

/** What to boot. */
export interface BootOrder {
  spec: NodeSandboxSpec;
  facts: BootFacts;
  template: Template;
  network: SandboxNetwork;
  /** What a new disk begins with. */
  head?: Uint8Array;
  /** The sandbox was somebody before: who it is stands on its disk. */
  rebooted: boolean;
  /** Its own disk is that of the machine before. */
  diskKept: boolean;
  /** Snapshots whose disks lie below the machine's own. */
  layers: readonly string[];
  /** Must be done before anything of the user's runs. */
  policy?: Promise<unknown>;
}

/** The guest's first answer may take this long on a host that starts many machines at once, ms. */
const guestDeadlineMs = 60_000;

/** Boots. Everything it makes is undone by `undo`, also after a throw. */
export async function bootMachine(
  order: BootOrder,
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<StartedParts> {
  const { spec, network } = order;
  const machine = await timed('restore', progress, () => restore(order, parts, progress, undo, signal));
  if (machine.timings) progress.timing('disk', machine.timings.diskMs);
  const guest = await limitAndConnect(machine, spec, parts, undo, (message) => progress.warn(message));
  await whileItLives(machine, async () => {
    const { init, startCommand } = firstPrograms(spec, order.facts.image);
    await timed('mount', progress, () => initGuest(order, init, guest, progress, signal));
    await timed('ready', progress, async () => {
      await order.policy;
      await makeView(spec, guest, signal);
      if (startCommand.length > 0) await runStartCommand(startCommand, guest, progress);
      else if (spec.startCommand && init.length === 0)
        progress.warn('The image has neither ENTRYPOINT nor CMD: nothing was started.');
    });
  });
  return { machine, network, guest };
}

/** A sandbox that was somebody before boots again: with the disk that the machine before has left, or one above its layers alone. */
export async function bootAgain(
  { spec, boot: facts, layers = [] }: SandboxRecord,
  { network, diskKept }: Pick<BootOrder, 'network' | 'diskKept'>,
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<StartedParts> {
  if (!facts) throw new Error('its record was written by a version that could not reboot sandboxes');
  const shape = { vcpus: spec.vcpus, memoryMiB: spec.memoryMiB };
  const template = await untilAborted(parts.templates.get(shape), signal);
  const order = { spec, facts, template, network, layers, rebooted: true, diskKept };
  return parts.restores.run(signal, () => bootMachine(order, parts, progress, undo, signal));
}

async function restore(
  { spec, facts, template, network, head, diskKept, layers }: BootOrder,
  parts: StartParts,
  progress: StartProgress,
  undo: UndoStack,
  signal: AbortSignal,
): Promise<Machine> {
  const disk = {
    backingPath: facts.rootfsPath,
    sizeBytes: facts.diskBytes,
    ...(diskKept ? { kept: true } : head ? { head } : {}),
  };
  const order = { spec, from: template, network, disk, reads: { layers: [...layers] } };
  const machine = await restoreMachine(order, parts, undo, signal);
  await progress.save({ machine: machine.handle, boot: facts });
  return machine;
}

async function initGuest(
  { spec, facts, rebooted }: BootOrder,
  initProgram: string[],
  guest: GuestClient,
  progress: StartProgress,
  signal: AbortSignal,
): Promise<void> {
  await guest.connect(guestDeadlineMs, signal);
  const init: GuestInit = {
    sandboxId: spec.sandboxId,
    timeUnixMs: Date.now(),
    entropyBase64: randomBytes(64).toString('base64'),
    hostname: spec.hostname,
    machineId: machineIdOf(spec.sandboxId, spec.generation),
    resolvConf: `nameserver ${guestAddresses.resolver}\noptions timeout:3 attempts:3\n`,
    image: facts.image,
    env: spec.env,
    secrets: spec.secrets,
    growRoot: facts.mustGrow,
    cpuLimit: 0,
    ...(rebooted ? { rebooted } : {}),
    ...(initProgram.length > 0 ? { init: initProgram } : {}),
  };
  const connectedMs = performance.now();
  const result = await guest.init(init, signal);
  if (initProgram.length > 0) await handOver(guest, initProgram, signal);
  progress.guestInitialised({ ...result, callMs: performance.now() - connectedMs });
  await progress.save({ shell: result.shell });
  if (result.shell === '') {
    progress.warn(
      'The image has no shell, neither in /bin nor on its PATH: commands need a full path and no shell syntax.',
    );
  }
}

/** The next connection makes the image's init process 1; who answers it is the agent beside that. */
async function handOver(guest: GuestClient, initProgram: string[], signal: AbortSignal): Promise<void> {
  guest.disconnect();
  await guest.connect(guestDeadlineMs, signal);
  const { agentPid } = await guest.health(signal);
  const failed = (why: string) => new Error(`${initProgram.join(' ')} did not become process 1: ${why}`);
  if (agentPid === undefined || agentPid === 1) throw failed('the guest agent is still that');
  try {
    await probeGuest(guest, signal);
  } catch (cause) {
    throw failed((cause as Error).message);
  }
}

/**
 * Before the start command, so that what must exist is what the image brings, and a start is refused or not by that
 * alone. The start command itself is its owner's service: it acts outside.
 */
async function makeView(spec: NodeSandboxSpec, guest: GuestClient, signal: AbortSignal): Promise<void> {
  if (!spec.view) return;
  try {
    await guest.makeView(spec.view, signal);
  } catch (error) {
    if (error instanceof GuestCallError && error.status === 400) throw new ViewRefusedError(error);
    throw error;
  }
}

async function runStartCommand(argv: string[], guest: GuestClient, progress: StartProgress): Promise<void> {
  const start: ExecStart = { argv, shellFallback: true };
  await guest.startCommand(start);
  await progress.save({ startCommandRuns: true });
}

/** 32 hex digits that differ for each sandbox and generation, and are the same when a start is repeated. */
export function machineIdOf(sandboxId: string, generation: number): string {
  return createHash('sha256').update(`machine-id ${sandboxId} ${generation}`).digest('hex').slice(0, 32);
}
