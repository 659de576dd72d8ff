/** `sandlot status`. */
import type { CliContext } from '../context.js';
import type { OutputOptions } from '../grammar/binder.js';
import { properties } from '../output/table.js';

/** The action. */
export async function run(context: CliContext, _args: [], options: OutputOptions): Promise<void> {
  const client = await context.client();
  const status = await client.server.status();
  if (options.output === 'json') return context.out.json(status);
  const counts = Object.entries(status.counts)
    .filter(([, count]) => count > 0)
    .map(([state, count]) => `${count} ${state}`);
  const room = status.nodes.map(({ offer, reserved }) => used(reserved, offer));
  context.out.line(
    properties([
      ['server', client.url],
      ['version', status.version],
      ['accelerator', [status.accelerator, status.acceleratorReason].filter(Boolean).join(': ')],
      ['network', status.networkMode],
      ['data', status.dataFolder],
      ['processes', status.processes.map(({ pid, role }) => `${role} (${pid})`).join(', ')],
      ['machines', status.machines.length],
      ['sandboxes', counts.join(', ') || 'none'],
      ...room.map((text) => ['booked', text] as const),
    ]),
  );
  for (const warning of status.warnings) context.out.note(`warning: ${warning}`);
}

interface Room {
  vcpus: number;
  memoryMiB: number;
  diskGiB: number;
}

function used(reserved: Room, offer: Room): string {
  const gib = (mib: number) => Math.round(mib / 102.4) / 10;
  return `${reserved.vcpus} of ${offer.vcpus} vCPUs, ${gib(reserved.memoryMiB)} of ${gib(offer.memoryMiB)} GiB memory, ${Math.round(reserved.diskGiB)} of ${Math.round(offer.diskGiB)} GiB disk`;
}
