/** Pure: a {@link CreateSandbox} in the form of `POST /sandbox`. */
import { randomUUID } from 'node:crypto';
import { wireView } from '../views.js';
import type { CreateSandbox } from './sandbox-types.js';

/** The body; absent fields are left out so that the server's defaults hold. */
export function createBody(create: CreateSandbox): Record<string, unknown> {
  const body: Record<string, unknown> = {
    name: create.name ?? defaultName(create),
    docker_image: create.image,
    checkpoint_id: create.checkpoint,
    restore_memory: create.restoreMemory,
    ...startCommand(create.startCommand),
    init: create.init,
    cpu_cores: create.cpu,
    memory_gb: create.memoryGiB,
    disk_size_gb: create.diskGiB,
    environment_vars: create.env,
    secrets: create.secrets,
    labels: create.labels ?? [],
    timeout_minutes: create.timeoutMinutes,
    idle_timeout_minutes: create.idleTimeoutMinutes,
    idle_action: create.idleAction,
    team_id: create.teamId,
    network_allowlist: create.networkAllowlist,
    network_denylist: create.networkDenylist,
    view: create.view && wireView(create.view),
    idempotency_key: create.idempotencyKey ?? randomUUID().replaceAll('-', ''),
  };
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
}

function startCommand(command: CreateSandbox['startCommand']): Record<string, unknown> {
  if (command === undefined) return {};
  if (typeof command === 'string') return { start_command: command };
  if ('entrypoint' in command) return { entrypoint: true };
  const [executable, ...args] = command;
  return { start_command: { executable, args } };
}

/** Names need not be unique: the last part of the image, without tag, says most. */
function defaultName({ image, checkpoint }: CreateSandbox): string {
  if (image === undefined) return `from-${checkpoint?.slice(0, 90) ?? 'nothing'}`;
  const last = image.split('@')[0]?.split('/').pop()?.split(':')[0] ?? '';
  return last.slice(0, 100) || 'sandbox';
}
