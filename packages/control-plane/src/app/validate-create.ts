/** What the schema of a create cannot say: fields that depend on each other, features that are not there yet. Pure. */
import {
  type CreateSandbox,
  type EgressPolicy,
  ImageReferenceError,
  parseImageReference,
  type SchemaIssue,
  viewIssues,
} from '@sandlot/protocol';
import type { SandboxRequest } from '../domain/record.js';
import { invalidRequest, notImplemented } from './app-error.js';
import { buildPolicy } from './build-policy.js';

/** A create that can be carried out. */
export interface ValidCreate {
  request: SandboxRequest;
  secrets: Record<string, string>;
  labels: string[];
  egress: EgressPolicy;
}

/** Most bytes of names and values of environment and secrets together. */
const maxEnvironmentBytes = 1024 * 1024;

const defaultTimeoutMinutes = 60;
/** Of one that is to be paused when it is idle. */
const defaultPauseMinutes = 15;

/** Checks a body that fits its schema; throws INVALID_REQUEST with every issue, or NOT_IMPLEMENTED. */
export function validateCreate(body: CreateSandbox): ValidCreate {
  refuseUnbuilt(body);
  const issues: SchemaIssue[] = [...fieldIssues(body), ...environmentIssues(body)];
  if (body.view !== undefined) issues.push(...viewIssues(body.view, 'view'));
  const denied = body.network_access === false;
  const lists = denied
    ? { allowlist: [], denylist: null }
    : { allowlist: body.network_allowlist ?? null, denylist: body.network_denylist ?? null };
  const egress = buildPolicy(lists, 0, { allow: 'network_allowlist', deny: 'network_denylist' }, issues);
  if (issues.length > 0) throw invalidRequest(issues);
  return {
    request: toRequest(body),
    secrets: body.secrets ?? {},
    labels: [...new Set(body.labels ?? [])],
    egress,
  };
}

function refuseUnbuilt(body: CreateSandbox): void {
  if ((body.volumes ?? []).length > 0) throw notImplemented('volumes');
  if (body.registry_credentials_id !== undefined)
    throw notImplemented('registry credentials (registry_credentials_id)');
}

function fieldIssues(body: CreateSandbox): SchemaIssue[] {
  const issues: SchemaIssue[] = [];
  const say = (param: string, details: string) => issues.push({ param, details });
  if (body.docker_image === undefined) say('docker_image', 'Is required.');
  else {
    const wrong = wrongReference(body.docker_image);
    if (wrong !== undefined) say('docker_image', wrong);
  }
  if (hasControl(body.name)) say('name', 'Must not hold control characters.');
  if (body.timeout_minutes === 0)
    say('timeout_minutes', 'Must be 1 to 525600, or negative for no limit; 0 is neither.');
  const timeout = body.timeout_minutes ?? defaultTimeoutMinutes;
  if (timeout > 0 && (body.idle_timeout_minutes ?? 0) > timeout)
    say('idle_timeout_minutes', `Must not be more than timeout_minutes, which is ${timeout}.`);
  if (body.arch === 'arm64') say('arch', 'This server runs amd64 machines only.');
  if ((body.gpu_count ?? 0) > 0) say('gpu_count', 'This server has no GPUs to give: must be 0.');
  if (body.entrypoint === true && body.start_command !== undefined)
    say('entrypoint', 'Give either entrypoint or start_command.');
  const command = body.start_command;
  const words =
    command === undefined
      ? []
      : typeof command === 'string'
        ? [command]
        : [command.executable, ...(command.args ?? [])];
  if (words.some((word) => word.includes('\0'))) say('start_command', 'Must not hold NUL characters.');
  return issues;
}

/** Why a text is no image reference; undefined when it is one. */
function wrongReference(text: string): string | undefined {
  try {
    parseImageReference(text);
    return undefined;
  } catch (error) {
    if (!(error instanceof ImageReferenceError)) throw error;
    return `${error.message}.`;
  }
}

/** What is wrong with names, values or size of an environment and secrets. */
export function environmentIssues(body: Pick<CreateSandbox, 'environment_vars' | 'secrets'>): SchemaIssue[] {
  const issues: SchemaIssue[] = [];
  let bytes = 0;
  for (const param of ['environment_vars', 'secrets'] as const)
    for (const [name, value] of Object.entries(body[param] ?? {})) {
      bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
      if (name === '' || /[=\0]/.test(name))
        issues.push({ param: `${param}.${name}`, details: 'A name must not be empty or hold "=" or NUL.' });
      if (value.includes('\0'))
        issues.push({ param: `${param}.${name}`, details: 'A value must not hold NUL.' });
    }
  if (bytes > maxEnvironmentBytes)
    issues.push({
      param: 'environment_vars',
      details: `With the secrets it has ${bytes} bytes; at most ${maxEnvironmentBytes} are allowed.`,
    });
  return issues;
}

function toRequest(body: CreateSandbox): SandboxRequest {
  return {
    name: body.name,
    image: body.docker_image ?? '',
    startCommand: body.start_command ?? null,
    entrypoint: body.entrypoint ?? false,
    init: body.init ?? false,
    cpuCores: body.cpu_cores ?? 1,
    memoryGb: body.memory_gb ?? 2,
    diskGb: body.disk_size_gb ?? 10,
    vm: body.vm ?? true,
    timeoutMinutes: body.timeout_minutes ?? defaultTimeoutMinutes,
    idleTimeoutMinutes: idleMinutesOf(body),
    ...(body.idle_action === 'pause' ? { idleAction: 'pause' } : {}),
    environmentVars: body.environment_vars ?? {},
    secretNames: Object.keys(body.secrets ?? {}),
    advancedConfigs: body.advanced_configs ?? null,
    region: body.region ?? null,
    // Outside of any view is how a sandbox without one acts.
    ...(body.view === undefined || body.view.strength === 'none' ? {} : { view: body.view }),
  };
}

/** One that is to be paused when it is idle needs a time after which it is. */
function idleMinutesOf({ idle_timeout_minutes: minutes, idle_action: action }: CreateSandbox): number | null {
  return minutes ?? (action === 'pause' ? defaultPauseMinutes : null);
}

function hasControl(text: string): boolean {
  return [...text].some((character) => character < ' ' || character === '\u007f');
}
