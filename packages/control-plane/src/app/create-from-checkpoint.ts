/** A create with `checkpoint_id`: which checkpoint, whether it can be restored, and what its sandbox had where the body says nothing. */
import type { CreateSandbox, SchemaIssue } from '@sandlot/protocol';
import type { CheckpointRecord } from '../domain/checkpoint.js';
import type { SandboxRecord } from '../domain/record.js';
import { effectiveShape } from '../domain/shape.js';
import { AppError, invalidRequest } from './app-error.js';
import { requireCheckpoint } from './checkpoints.js';
import type { AppContext, Caller } from './context.js';
import { fromNode } from './node-failure.js';

/** What a sandbox begins with in place of an image. */
export interface Origin {
  checkpoint: CheckpointRecord;
  memory: boolean;
  secrets: Record<string, string>;
}

/**
 * Finds it, if the body names one.
 * @throws AppError NOT_FOUND, CONFLICT when it cannot be restored so, INVALID_REQUEST for fields that do not go with it
 */
export async function findOrigin(
  app: AppContext,
  caller: Caller,
  body: CreateSandbox,
): Promise<Origin | undefined> {
  const { checkpoint_id: id, restore_memory: memory = false } = body;
  if (id === undefined) {
    if (memory) throw invalidRequest([{ param: 'restore_memory', details: 'Needs a checkpoint_id.' }]);
    return undefined;
  }
  const checkpoint = await requireCheckpoint(app, caller.actor, id);
  const issues = fieldIssues(body, checkpoint);
  if (issues.length > 0) throw invalidRequest(issues);
  await requireRestorable(app, caller, checkpoint, memory, true);
  return { checkpoint, memory, secrets: await app.store.readCheckpointSecrets(id) };
}

/**
 * Whether a checkpoint can be restored at its node; unless `quick`, what it is made of is read and compared.
 * @throws AppError CONFLICT with the reason, NODE_UNAVAILABLE
 */
export async function requireRestorable(
  app: AppContext,
  caller: Caller,
  { id, state, withMemory, nodeId, error }: CheckpointRecord,
  memory: boolean,
  quick: boolean,
): Promise<void> {
  if (state !== 'durable')
    throw new AppError(
      'CONFLICT',
      `Checkpoint ${id} is ${state.toUpperCase()}, and only a DURABLE one can be restored.${error === null ? '' : ` ${error}`}`,
    );
  if (memory && !withMemory)
    throw new AppError(
      'CONFLICT',
      `Checkpoint ${id} has no memory: it was made without. Restore its disk (leave restore_memory out), or make one with memory.`,
    );
  await fromNode(`restore checkpoint ${id}`, () =>
    app.fleet.client(nodeId, caller.requestId).checkCheckpoint(id, memory, quick),
  );
}

function fieldIssues(body: CreateSandbox, { shape }: CheckpointRecord): SchemaIssue[] {
  const issues: SchemaIssue[] = [];
  const say = (param: string, details: string) => issues.push({ param, details });
  for (const param of ['docker_image', 'disk_size_gb'] as const)
    if (body[param] !== undefined) say(param, 'Must be absent with checkpoint_id, which brings its own.');
  if (body.restore_memory !== true) return issues;
  for (const param of ['start_command', 'entrypoint', 'init'] as const)
    if (body[param] !== undefined && body[param] !== false)
      say(param, 'Must be absent with restore_memory: what ran goes on.');
  const wanted = effectiveShape(body.cpu_cores ?? shape.vcpus, body.memory_gb ?? shape.memoryMiB / 1024, 1);
  const text = `With restore_memory it is that of the checkpoint: ${shape.vcpus} vCPU, ${shape.memoryMiB / 1024} GiB. Give that, or nothing.`;
  if (wanted.vcpus !== shape.vcpus) say('cpu_cores', text);
  if (wanted.memoryMiB !== shape.memoryMiB) say('memory_gb', text);
  return issues;
}

/** The body with what the sandbox of the checkpoint had where it says nothing. Pure. */
export function completeBody(body: CreateSandbox, origin: Origin | undefined): CreateSandbox {
  if (!origin) return body;
  const { checkpoint, memory, secrets } = origin;
  const { request, egress } = checkpoint;
  const saysNetwork =
    body.network_access !== undefined ||
    body.network_allowlist !== undefined ||
    body.network_denylist !== undefined;
  return {
    ...body,
    docker_image: request.image,
    cpu_cores: body.cpu_cores ?? request.cpuCores,
    memory_gb: body.memory_gb ?? request.memoryGb,
    disk_size_gb: request.diskGb,
    environment_vars: { ...request.environmentVars, ...body.environment_vars },
    secrets: { ...secrets, ...body.secrets },
    ...(body.view === undefined && request.view ? { view: request.view } : {}),
    ...startOf(checkpoint, body, memory),
    ...(saysNetwork ? {} : listsOf(egress)),
  };
}

/** The init of a machine is a matter of its disk; a start command is not repeated, but in memory it runs. */
function startOf(
  { request }: CheckpointRecord,
  body: CreateSandbox,
  memory: boolean,
): Pick<CreateSandbox, 'init' | 'start_command' | 'entrypoint'> {
  if (!memory) return request.init && body.init === undefined ? { init: true } : {};
  return {
    ...(request.init ? { init: true } : {}),
    ...(request.startCommand === null ? {} : { start_command: request.startCommand }),
    ...(request.entrypoint ? { entrypoint: true } : {}),
  };
}

function listsOf({
  allowlist,
  denylist,
}: CheckpointRecord['egress']): Pick<CreateSandbox, 'network_allowlist' | 'network_denylist'> {
  if (allowlist !== null) return { network_allowlist: allowlist };
  return denylist === null ? {} : { network_denylist: denylist };
}

/** What of a new record says where it begins. Pure. */
export function beginning(
  origin: Origin | undefined,
): Pick<SandboxRecord, 'beginsWith' | 'checkpointId' | 'tip'> {
  if (!origin) return {};
  const { id, nodeId, depth } = origin.checkpoint;
  return {
    beginsWith: { id, memory: origin.memory, nodeId },
    checkpointId: id,
    tip: { id, depth },
  };
}
