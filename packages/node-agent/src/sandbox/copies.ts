/**
 * What copies of a sandbox begin with: their records, each the source's but for who they are. Used by `sandboxes.ts`, for forks and for
 * creates from a checkpoint; a rollback goes to such a point as well.
 */
import type { NodeSandboxSpec } from '@sandlot/protocol';
import type { RestorePoint, SandboxRecord } from './record.js';

/** Where a sandbox is, as of a snapshot of it that is a layer of its disk by now. Pure. Throws for one that has never run. */
export function pointOf(source: SandboxRecord, memory: string | undefined): RestorePoint {
  const { boot, layers = [], shell, startCommandRuns, sessionsElsewhere, report, spec } = source;
  const { imageDigest, exitCode } = report;
  if (!boot) throw new Error(`${spec.sandboxId} has never run, and there is nothing to go on from`);
  return {
    sandboxId: spec.sandboxId,
    ...(memory === undefined ? {} : { memory }),
    layers: [...layers],
    boot,
    ...(imageDigest === undefined ? {} : { imageDigest }),
    ...(shell === undefined ? {} : { shell }),
    ...(startCommandRuns ? { startCommandRuns } : {}),
    ...(sessionsElsewhere ? { sessionsElsewhere: [...sessionsElsewhere] } : {}),
    ...(exitCode === undefined ? {} : { exitCode }),
  };
}

/** The record of one copy. Pure. */
export function recordOfCopy(point: RestorePoint, spec: NodeSandboxSpec): SandboxRecord {
  const { imageDigest } = point;
  return {
    form: 1,
    spec,
    report: {
      sandboxId: spec.sandboxId,
      generation: spec.generation,
      state: 'pending',
      timings: {},
      ...(imageDigest === undefined ? {} : { imageDigest }),
      ...(point.memory === undefined || point.exitCode === undefined ? {} : { exitCode: point.exitCode }),
    },
    ...(point.memory === undefined ? { copyOfDisk: true } : { copy: true }),
    ...stateOf(point),
  };
}

/** What of a record the point says. Pure. */
export function stateOf(
  point: RestorePoint,
): Pick<SandboxRecord, 'memory' | 'layers' | 'boot' | 'shell' | 'startCommandRuns' | 'sessionsElsewhere'> {
  const { memory, layers, boot, shell, startCommandRuns, sessionsElsewhere } = point;
  const disk = { layers: [...layers], boot };
  if (memory === undefined) return disk;
  return {
    memory,
    ...disk,
    ...(shell === undefined ? {} : { shell }),
    ...(startCommandRuns ? { startCommandRuns } : {}),
    ...(sessionsElsewhere ? { sessionsElsewhere: [...sessionsElsewhere] } : {}),
  };
}
