/**
 * The steps of a checkpoint: file systems of the guest brought to its disk, disk or machine saved, the checkpoint's record. The sandbox goes
 * on. Called by `sandbox.ts`; what is made of a paused one is in `checkpoint-paused.ts`.
 *
 * If we die before the record of the checkpoint is there, there is none; the sandbox is as after a fork that was cut off. A
 * guest that stands frozen then is thawed when it is adopted, and by itself after a minute.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Machine, VmmError } from '@sandlot/vmm';
import type { CheckpointRecord } from '../checkpoints/checkpoint-record.js';
import { checkpointHolder } from '../checkpoints/checkpoint-store.js';
import type { GuestClient } from '../guest/guest-client.js';
import { pointOf } from './copies.js';
import type { RecordOwner } from './record-progress.js';
import { saveAndGoOn } from './save-for-copies.js';
import { saveInto } from './save-machine.js';
import type { StartParts } from './start-parts.js';

/** A guest may take so long to bring its files to its disk and hold still, ms; else it is saved as it is. */
const freezeTimeoutMs = 1_000;

/** What is to be made. */
export interface CheckpointOrder {
  id: string;
  memory: boolean;
  /** Of the driver: whose memory goes on there. */
  fingerprint: string;
  /** The same in words. */
  by: string;
}

/** What of a checkpoint is known when it is saved. */
export type SavedCheckpoint = Omit<CheckpointRecord, 'form' | 'durable'>;

/** Makes it. Its snapshots are kept in its name from then on. On a throw the sandbox runs as before, and nothing is left. */
export async function makeCheckpoint(
  { machine, guest }: { machine: Machine; guest: GuestClient },
  owner: RecordOwner,
  parts: Pick<StartParts, 'snapshots'>,
  { id, memory, fingerprint, by }: CheckpointOrder,
  signal: AbortSignal,
): Promise<SavedCheckpoint> {
  const { record } = owner;
  const frozen = new FrozenGuest(guest);
  let createdAtUnixMs = Date.now();
  try {
    const snapshot = await saveAndGoOn(
      machine,
      owner,
      parts,
      {
        holderOf: () => checkpointHolder(id),
        save: async (snapshotId, snapshotting, until) => {
          await frozen.begin();
          if (memory) {
            // One that is frozen in its memory would be so for good. What it had written is on its disk by now.
            await frozen.end();
            createdAtUnixMs = Date.now();
            return saveInto(snapshotId, snapshotting, 'go on', parts, until);
          }
          if (!snapshotting.saveDisk)
            throw new VmmError('save-failed', 'machines of this driver cannot save their disk alone');
          const folder = await parts.snapshots.makeFolder(snapshotId);
          const readableBy = parts.snapshots.groupOf(snapshotId);
          createdAtUnixMs = Date.now();
          const request = { folder, ...(readableBy === undefined ? {} : { readableBy }) };
          return { totalMs: (await snapshotting.saveDisk(request, until)).totalMs };
        },
      },
      signal,
    );
    const shape = { vcpus: record.spec.vcpus, memoryMiB: record.spec.memoryMiB };
    return {
      id,
      sandboxId: record.spec.sandboxId,
      createdAtUnixMs,
      consistency: !memory && frozen.held ? 'application' : 'crash',
      ...(frozen.why === undefined ? {} : { note: frozen.why }),
      point: pointOf(record, memory ? snapshot : undefined),
      ...(memory ? { made: { shape, fingerprint, by } } : {}),
    };
  } catch (error) {
    await parts.snapshots.need(checkpointHolder(id), []);
    throw error;
  } finally {
    await frozen.end();
  }
}

/** A guest whose root file system stands still, if it agrees. */
class FrozenGuest {
  /** It held still until {@link end}. */
  held = false;
  /** Why it did not. */
  why: string | undefined;
  #asked: Promise<boolean> | undefined;
  #ended = false;

  constructor(private readonly guest: GuestClient) {}

  async begin(): Promise<void> {
    const asked = this.guest.freeze().then(
      () => true,
      (error: Error) => {
        this.why = `its file system could not be frozen: ${error.message}`;
        return false;
      },
    );
    this.#asked = asked;
    const late = new AbortController();
    const inTime = await Promise.race([
      asked,
      sleep(freezeTimeoutMs, undefined, { signal: late.signal }).catch(() => undefined),
    ]);
    late.abort();
    if (inTime === undefined) this.why = `its file system was not frozen within ${freezeTimeoutMs} ms`;
    this.held = inTime === true;
  }

  /** Lets it go on. One that freezes too late is thawed when it has. */
  async end(): Promise<void> {
    const { guest } = this;
    if (this.#ended || this.#asked === undefined) return;
    this.#ended = true;
    const thawed = this.#asked.then(() => guest.thaw()).catch(() => undefined);
    if (this.held) await thawed;
  }
}
