/** What a start or a reboot tells, written into the sandbox's record and report. Used by `sandbox.ts`. */
import type { SandboxReport, StartStage } from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { SandboxRecord } from './record.js';
import type { StartProgress } from './start-parts.js';

/** How the owner of the record changes its report, and saves it. */
export interface RecordOwner {
  record: SandboxRecord;
  change(change: Partial<SandboxReport>): void;
  /** @param forGood also over a loss of power */
  save(forGood?: boolean): Promise<void>;
  log: Logger;
}

/** Of a start. */
export function startProgress({ record, change, save, log }: RecordOwner): StartProgress {
  const { report } = record;
  return {
    stage: (stage) => {
      const begins = stage !== 'image' && report.state === 'pending';
      change(begins ? { stage, state: 'starting' } : { stage });
    },
    timing: (stage: StartStage, ms: number) => {
      report.timings[stage] = Math.round(ms * 10) / 10;
    },
    save: async (changed) => {
      Object.assign(record, changed);
      await save();
    },
    imageKnown: (hold) => {
      report.imageDigest = hold.image.digest;
    },
    imageBuild: (id) => {
      if (id) change({ imageBuildId: id });
      else delete report.imageBuildId;
    },
    guestInitialised: (result) => log.debug({ result }, 'guest initialised'),
    warn: (message) => {
      report.warnings = [...(report.warnings ?? []), message];
    },
  };
}

/** Of a reboot: what was said and measured at the start stands. */
export function rebootProgress(owner: RecordOwner): StartProgress {
  return { ...startProgress(owner), stage: () => {}, timing: () => {}, warn: () => {} };
}
