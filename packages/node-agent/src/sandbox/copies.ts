/** What the copies of a sandbox begin with: their records, each the source's but for who they are. Used by `sandboxes.ts`. */
import type { NodeSandboxSpec } from '@sandlot/protocol';
import type { SandboxRecord } from './record.js';

/** The record of one copy, as of the snapshot. Pure. */
export function recordOfCopy(
  source: SandboxRecord,
  snapshotId: string,
  spec: NodeSandboxSpec,
): SandboxRecord {
  const { boot, layers = [], shell, startCommandRuns, sessionsElsewhere, report } = source;
  const { imageDigest, exitCode } = report;
  return {
    form: 1,
    spec,
    report: {
      sandboxId: spec.sandboxId,
      generation: spec.generation,
      state: 'pending',
      timings: {},
      ...(imageDigest === undefined ? {} : { imageDigest }),
      ...(exitCode === undefined ? {} : { exitCode }),
    },
    copy: true,
    memory: snapshotId,
    layers: [...layers],
    ...(boot ? { boot } : {}),
    ...(shell === undefined ? {} : { shell }),
    ...(startCommandRuns ? { startCommandRuns } : {}),
    ...(sessionsElsewhere ? { sessionsElsewhere: [...sessionsElsewhere] } : {}),
  };
}
