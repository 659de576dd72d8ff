/** `sandlot down`: ends sandboxes and server on this machine. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { shutDown } from '../up/shut-down.js';

/** The action. */
export async function run(
  context: CliContext,
  _args: [],
  options: OutputOptions & { data?: string },
): Promise<void> {
  const report = await shutDown(context, options.data ?? context.settings().data.value);
  if (options.output === 'json') return context.out.json(report);
  if (report.nodeAgent === 'absent' && report.controlPlane === 'absent') {
    context.out.line('nothing was running');
    return;
  }
  const parts = [
    report.sandboxes > 0 ? `${report.sandboxes} sandbox${report.sandboxes === 1 ? '' : 'es'} ended` : '',
    sentence('node agent', report.nodeAgent),
    sentence('control plane', report.controlPlane),
  ];
  context.out.line(`${parts.filter((part) => part !== '').join(', ')}; images, templates and records stay`);
}

function sentence(role: string, outcome: string): string {
  if (outcome === 'absent') return '';
  if (outcome === 'cleaned-up') return `what a dead ${role} had left was cleaned up`;
  return `${role} ${outcome}`;
}
