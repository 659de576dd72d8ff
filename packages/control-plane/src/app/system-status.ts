/** `GET /status`, and the counts behind `/metrics`. */
import { activeStatuses, type NodeStatus, productVersion, type SystemStatus } from '@sandlot/protocol';
import type { Actor } from '../domain/access.js';
import { countByStatus, findQueuedIds } from '../store/sandboxes.js';
import { atMost } from './bounded.js';
import type { AppContext, Caller } from './context.js';

/** How long a status waits for fresh facts of the nodes. */
const refreshMs = 2_000;

/** What runs. */
export async function getStatus(app: AppContext, caller: Caller, dataFolder: string): Promise<SystemStatus> {
  const { actor } = caller;
  await Promise.all(
    app.fleet.links.map((link) =>
      atMost(
        link
          .refresh()
          .catch((error: unknown) => app.log.debug({ err: error }, 'a node did not answer a status')),
        refreshMs,
      ),
    ),
  );
  const infos = app.fleet.infos();
  const nodes = await describeNodes(app);
  const first = infos[0];
  const daemons = infos.flatMap((info) => [{ pid: info.pid, role: 'node agent' }, ...info.processes]);
  return {
    version: productVersion,
    url: caller.publicOrigin,
    accelerator: first?.accelerator ?? null,
    acceleratorReason: first?.acceleratorReason ?? null,
    networkMode: first?.networkMode ?? null,
    dataFolder: actor.isAdmin ? dataFolder : null,
    processes: actor.isAdmin ? uniqueByPid([{ pid: process.pid, role: 'control plane' }, ...daemons]) : [],
    machines: actor.isAdmin ? infos.flatMap((info) => info.machines) : [],
    nodes,
    counts: await countSandboxes(app, actor),
    warnings: nodes.flatMap((node) =>
      node.reachable ? node.warnings : [...node.warnings, `node ${node.nodeId} cannot be reached`],
    ),
  };
}

/** Live sandboxes by status: the actor's, or all for an admin or no actor. */
export async function countSandboxes(app: AppContext, actor?: Actor): Promise<SystemStatus['counts']> {
  const visibleTo =
    actor === undefined || actor.isAdmin
      ? {}
      : { visibleTo: { userId: actor.userId, teamIds: [...actor.teams.keys()] } };
  const counts = await countByStatus(app.store.db, { ...visibleTo, statuses: activeStatuses });
  return {
    pending: counts.get('PENDING') ?? 0,
    provisioning: counts.get('PROVISIONING') ?? 0,
    running: counts.get('RUNNING') ?? 0,
    paused: counts.get('PAUSED') ?? 0,
    queued: (await findQueuedIds(app.store.db)).length,
  };
}

async function describeNodes(app: AppContext): Promise<NodeStatus[]> {
  const snapshot = await app.dispatcher.snapshot(app.store.db);
  return snapshot.flatMap(({ nodeId, reachable, offer, reserved }) => {
    const info = app.fleet.link(nodeId)?.info;
    if (info === undefined) return [];
    const { version, accelerator, acceleratorReason, networkMode, warnings } = info;
    return [
      { nodeId, reachable, version, accelerator, acceleratorReason, networkMode, offer, reserved, warnings },
    ];
  });
}

function uniqueByPid<T extends { pid: number }>(list: T[]): T[] {
  return [...new Map(list.map((item) => [item.pid, item])).values()];
}
