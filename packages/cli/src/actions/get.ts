/** `sandlot get`. */
import type { SandboxInfo } from '@sandlot/sdk';
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { properties } from '../output/table.js';
import { viewText } from './view-options.js';

/** The action. */
export async function run(context: CliContext, [id]: [string], options: OutputOptions): Promise<void> {
  const info = await (await context.client()).sandboxes.find(id);
  if (options.output === 'json') context.out.json(info);
  else context.out.line(describe(info));
}

/** The sandbox for a person. */
export function describe(info: SandboxInfo): string {
  const timings = Object.entries(info.timings ?? {}).map(([stage, ms]) => `${stage} ${Math.round(ms)} ms`);
  const { vcpus, memoryMiB, diskGiB } = info.effective ?? {};
  const effective = [
    vcpus === undefined ? '' : `${vcpus} vCPU`,
    memoryMiB === undefined ? '' : `${memoryMiB} MiB`,
    diskGiB === undefined ? '' : `${diskGiB} GiB disk`,
  ].filter((part) => part !== '');
  return properties([
    ['id', info.id],
    ['name', info.name],
    ['image', info.dockerImage],
    ['status', info.status],
    ['stage', info.stage],
    ['queue position', info.queuePosition],
    ['why', info.errorMessage ?? info.errorType ?? info.terminationReason],
    ['asked for', `${info.cpuCores} CPU, ${info.memoryGB} GiB memory, ${info.diskSizeGB} GiB disk`],
    ['got', effective.join(', ')],
    ['start command', commandText(info)],
    ['process 1', info.init ? "the image's init" : undefined],
    ['exit code', info.exitCode],
    ['lifetime', info.timeoutMinutes < 0 ? 'unlimited' : `${info.timeoutMinutes} min`],
    ['idle timeout', idleText(info)],
    ['view', viewText(info.view)],
    ['environment', Object.keys(info.environmentVars ?? {}).join(', ')],
    ['secrets', Object.keys(info.secrets ?? {}).join(', ')],
    ['labels', info.labels.join(', ')],
    ['may reach', info.networkAllowlist ? info.networkAllowlist.join(', ') || 'nothing' : undefined],
    ['may not reach', info.networkDenylist?.join(', ')],
    ['created', info.createdAt],
    ['started', info.startedAt],
    ['ended', info.terminatedAt],
    ['stages', timings.join(', ')],
    ...(info.warnings ?? []).map((text) => ['warning', text] as const),
    ['user', info.userId],
    ['team', info.teamId],
  ]);
}

function idleText({ idleTimeoutMinutes: minutes, idleAction }: SandboxInfo): string | undefined {
  if (!minutes) return undefined;
  return `${minutes} min${idleAction === 'pause' ? ', then it is paused' : ''}`;
}

function commandText({ startCommand: command, entrypoint }: SandboxInfo): string | undefined {
  if (!command) return entrypoint ? "the image's own (ENTRYPOINT and CMD)" : undefined;
  return typeof command === 'string' ? command : [command.executable, ...(command.args ?? [])].join(' ');
}
