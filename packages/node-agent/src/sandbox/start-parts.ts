/** What starts and reboots of a sandbox work with and make, and how they tell of their progress. */
import type { ImageStore, RootfsHold } from '@sandlot/images';
import type { GuestInitResult, StartStage } from '@sandlot/protocol';
import type { Machine, VmmDriver } from '@sandlot/vmm';
import type { GuestClient } from '../guest/guest-client.js';
import type { Networks, SandboxNetwork } from '../network/network.js';
import type { ChainMerger } from '../snapshots/chain-merger.js';
import type { Checksums } from '../snapshots/checksums.js';
import type { SnapshotStore } from '../snapshots/snapshot-store.js';
import type { TemplateStore } from '../templates/template-store.js';
import type { CpuLimits } from './cpu-limits.js';
import type { RecordFolder, SandboxRecord } from './record.js';
import type { Semaphore } from './semaphore.js';

/** What the steps work with: the node's parts. */
export interface StartParts {
  driver: VmmDriver;
  images: ImageStore;
  networks: Networks;
  templates: TemplateStore;
  snapshots: SnapshotStore;
  merger: Pick<ChainMerger, 'look' | 'room'>;
  checksums: Checksums;
  records: RecordFolder;
  cpuLimits: CpuLimits;
  /** Limits restores that run at once. */
  restores: Semaphore;
}

/** What the steps tell their sandbox while they run. */
export interface StartProgress {
  stage(stage: StartStage): void;
  timing(stage: StartStage, ms: number): void;
  /** The record has changed and must be on disk before we go on. */
  save(
    change: Partial<Pick<SandboxRecord, 'network' | 'machine' | 'shell' | 'startCommandRuns' | 'boot'>>,
  ): Promise<void>;
  imageKnown(hold: RootfsHold): void;
  /** Set while the image is not here yet. */
  imageBuild(id: string | undefined): void;
  /** What each part of init took, for the log. */
  guestInitialised(result: GuestInitResult & { callMs: number }): void;
  warn(message: string): void;
}

/** A started sandbox's parts. */
export interface StartedParts {
  machine: Machine;
  network: SandboxNetwork;
  guest: GuestClient;
}

/** Does a step and tells its name and time. */
export async function timed<T>(
  stage: StartStage,
  progress: StartProgress,
  work: () => Promise<T>,
): Promise<T> {
  progress.stage(stage);
  const startedMs = performance.now();
  try {
    return await work();
  } finally {
    progress.timing(stage, performance.now() - startedMs);
  }
}

/** The result of work that is shared with others and goes on for them, unless the signal aborts first: a delete must not wait for it. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
