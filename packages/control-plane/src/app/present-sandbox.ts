/** From a record to the sandbox object of the wire, in the form that the asking client can parse. */
import type { Sandbox, StartCommand } from '@sandlot/protocol';
import type { SandboxRecord } from '../domain/record.js';
import { wireError, wireStatus } from '../domain/wire-status.js';
import { findQueuedIds } from '../store/sandboxes.js';
import type { AppContext, Caller } from './context.js';

/** What a secret looks like in an answer. */
const mask = '***';

/** Wire objects of records; one query more when any of them waits for room. */
export async function presentSandboxes(
  app: AppContext,
  caller: Caller,
  records: readonly SandboxRecord[],
): Promise<Sandbox[]> {
  const waits = records.some((record) => record.state === 'pending' && record.nodeId === null);
  const queue = waits ? await findQueuedIds(app.store.db) : [];
  const positions = new Map(queue.map((id, index) => [id, index + 1]));
  const now = app.now();
  return records.map((record) => present(record, caller.userAgent, positions.get(record.id) ?? null, now));
}

/** Wire object of one record. */
export async function presentSandbox(
  app: AppContext,
  caller: Caller,
  record: SandboxRecord,
): Promise<Sandbox> {
  return (await presentSandboxes(app, caller, [record]))[0] as Sandbox;
}

function present(
  record: SandboxRecord,
  userAgent: string,
  queuePosition: number | null,
  now: number,
): Sandbox {
  const { request, shape, egress } = record;
  const denyAll = egress.allowlist !== null && egress.allowlist.length === 0;
  return {
    id: record.id,
    name: request.name,
    dockerImage: request.image,
    startCommand: presentStartCommand(request.startCommand, userAgent),
    cpuCores: request.cpuCores,
    memoryGB: request.memoryGb,
    diskSizeGB: request.diskGb,
    diskMountPath: '/',
    gpuCount: 0,
    gpuType: null,
    vm: request.vm,
    networkAccess: !denyAll,
    networkAllowlist: egress.allowlist,
    networkDenylist: egress.denylist,
    status: wireStatus(record, now),
    timeoutMinutes: request.timeoutMinutes,
    idleTimeoutMinutes: request.idleTimeoutMinutes,
    idleAction: request.idleAction ?? 'end',
    terminationReason: record.reason,
    environmentVars: request.environmentVars,
    secrets: Object.fromEntries(request.secretNames.map((name) => [name, mask])),
    advancedConfigs: request.advancedConfigs,
    labels: record.labels,
    createdAt: iso(record.createdAt),
    updatedAt: iso(record.updatedAt),
    startedAt: record.startedAt === null ? null : iso(record.startedAt),
    terminatedAt: record.endedAt === null ? null : iso(record.endedAt),
    exitCode: record.exitCode,
    ...wireError(record, now),
    userId: record.ownerId,
    teamId: record.teamId,
    region: request.region,
    registryCredentialsId: null,
    pendingImageBuildId: record.state === 'pending' ? record.imageBuildId : null,
    entrypoint: request.entrypoint,
    init: request.init ?? false,
    effective: { vcpus: shape.vcpus, memoryMiB: shape.memoryMiB, diskGiB: shape.diskGiB },
    generation: record.generation,
    nodeId: record.nodeId,
    imageDigest: record.imageDigest,
    checkpointId: record.checkpointId ?? null,
    stage: queuePosition === null ? record.stage : 'queue',
    queuePosition,
    timings: record.timings,
    view: request.view ?? null,
    warnings: record.warnings,
  };
}

/** Clients up to 0.2.36 read a string only, those from 0.4 on an object only; an object is right for all others. */
function presentStartCommand(
  command: string | StartCommand | null,
  userAgent: string,
): string | StartCommand | null {
  if (command === null) return null;
  if (readsStringOnly(userAgent))
    return typeof command === 'string'
      ? command
      : [command.executable, ...(command.args ?? [])].map(quote).join(' ');
  if (typeof command === 'string') return { executable: '/bin/sh', args: ['-c', command] };
  return { executable: command.executable, args: command.args ?? [] };
}

function readsStringOnly(userAgent: string): boolean {
  const match = /^prime-sandboxes\/(\d+)\.(\d+)\.(\d+)/.exec(userAgent);
  if (match === null) return false;
  const [major, minor, patch] = match.slice(1).map(Number) as [number, number, number];
  return major === 0 && (minor < 2 || (minor === 2 && patch <= 36));
}

/** For people to read; nothing runs it. */
function quote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function iso(time: number): string {
  return new Date(time).toISOString();
}
