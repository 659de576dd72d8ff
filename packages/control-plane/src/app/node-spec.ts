/** From a record to what its node needs. Pure. */
import { guestViewOf, type NodeSandboxSpec } from '@sandlot/protocol';
import type { SandboxRecord } from '../domain/record.js';
import { diskBytes } from '../domain/shape.js';

/** The spec of a record's generation; the same each time it is sent, so that repeating it is harmless. */
export function nodeSpec(record: SandboxRecord, secrets: Record<string, string>): NodeSandboxSpec {
  const { request, shape } = record;
  const view = request.view && guestViewOf(request.view);
  return {
    sandboxId: record.id,
    generation: record.generation,
    image: request.image,
    vcpus: shape.vcpus,
    memoryMiB: shape.memoryMiB,
    cpuLimit: shape.cpuLimit,
    diskBytes: diskBytes(shape.diskGiB),
    hostname: record.id,
    env: request.environmentVars,
    secrets,
    ...startCommand(record),
    ...(request.init ? { init: true } : {}),
    egress: record.egress,
    ...(view === undefined ? {} : { view }),
    ...(record.beginsWith === undefined
      ? {}
      : { checkpoint: { id: record.beginsWith.id, memory: record.beginsWith.memory } }),
    ...(record.deadlineAt === null ? {} : { deadlineUnixMs: record.deadlineAt }),
    ...(request.idleTimeoutMinutes === null ? {} : { idleTimeoutMs: request.idleTimeoutMinutes * 60_000 }),
    ...(request.idleAction === 'pause' ? { idleAction: 'pause' } : {}),
    // A pause changes who runs it, not who may use it.
    tokensFrom: 1,
  };
}

function startCommand({ request }: SandboxRecord): Pick<NodeSandboxSpec, 'startCommand'> {
  if (request.entrypoint) return { startCommand: { entrypoint: true } };
  const command = request.startCommand;
  if (command === null) return {};
  if (typeof command === 'string') return { startCommand: { argv: ['/bin/sh', '-c', command] } };
  return { startCommand: { argv: [command.executable, ...(command.args ?? [])] } };
}
