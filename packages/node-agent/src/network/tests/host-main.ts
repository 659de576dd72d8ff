/**
 * Test program: networks of one instance, driven by JSON lines on stdin. `network-lab.ts` runs it in a network
 * namespace that plays the host, so that tests never touch the machine's own network.
 */
import { createInterface } from 'node:readline';
import type { EgressPolicy } from '@sandlot/protocol';
import { type Networks, openTapNetworks, type SandboxNetwork, type TapNetworkOptions } from '../network.js';

/** A request; the reply has the same id. */
export type HostRequest = { id: number } & (
  | { op: 'open'; options: TapNetworkOptions }
  | { op: 'acquire' }
  | { op: 'adopt' | 'release'; index: number }
  | { op: 'apply'; index: number; policy: EgressPolicy }
  | { op: 'reap' | 'state' }
  | { op: 'close'; mode: 'keep' | 'remove' }
);

/** A reply. */
export type HostReply = { id: number; ms: number } & ({ result: unknown } | { error: string; code?: string });

const held = new Map<number, SandboxNetwork>();
let networks: Networks | undefined;

async function handle(request: HostRequest): Promise<unknown> {
  if (request.op === 'open') {
    networks = openTapNetworks(request.options);
    return networks.start();
  }
  if (!networks) throw new Error('not open');
  switch (request.op) {
    case 'acquire':
      return describe(await networks.acquire());
    case 'adopt': {
      const network = await networks.adopt({ kind: 'tap', index: request.index });
      return network && describe(network);
    }
    case 'release':
      return held.get(request.index)!.release();
    case 'apply':
      return held.get(request.index)!.applyPolicy(request.policy);
    case 'reap':
      return networks.reap();
    case 'state':
      return { processes: networks.processes(), warnings: networks.warnings() };
    case 'close':
      return networks.close(request.mode);
  }
}

function describe(network: SandboxNetwork): unknown {
  held.set(network.handle.index, network);
  const { handle, machine, runAs, nodeAddress } = network;
  return { handle, machine, runAs, nodeAddress };
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const request = JSON.parse(line) as HostRequest;
  const begin = performance.now();
  const reply = (body: object): void => {
    const ms = Math.round((performance.now() - begin) * 10) / 10;
    process.stdout.write(`${JSON.stringify({ id: request.id, ms, ...body })}\n`);
  };
  handle(request).then(
    (result) => reply({ result }),
    (cause: Error & { code?: string }) => reply({ error: cause.message, code: cause.code }),
  );
});
