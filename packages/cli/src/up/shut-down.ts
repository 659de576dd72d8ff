/**
 * Ends everything of this machine's server and leaves nothing running: sandboxes, daemons, their
 * namespaces and rules. Images, templates and records stay. Where the daemons died without cleaning
 * up, the node agent is started once more to do so. Used by `down`.
 */
import { existsSync, rmSync } from 'node:fs';
import { Sandlot } from '@sandlot/sdk';
import { CliError } from '../cli-error.js';
import type { CliContext } from '../context.js';
import { startDaemon } from './daemon.js';
import { writeInstance } from './instance.js';
import { layoutOf } from './layout.js';
import { findLeftovers } from './leftovers.js';
import { type LocalServer, withServer } from './local-server.js';
import { isAlive, readReadyFile } from './process-identity.js';
import { removeBuildBinding } from './reachable-build.js';
import { isHealthy, requestDaemon } from './socket-request.js';
import { stopDaemon } from './stop-daemon.js';

/** Sandboxes end within this, or the node agent ends them when it goes. */
const endSandboxesMs = 60_000;
/** Longest clean end of the node agent: it ends every machine and takes down every namespace. */
const nodeEndMs = 90_000;

/** What was done. */
export interface ShutDownReport {
  sandboxes: number;
  nodeAgent: 'absent' | 'ended' | 'killed' | 'cleaned-up';
  controlPlane: 'absent' | 'ended' | 'killed';
}

/** Does it; harmless when there is nothing. */
export async function shutDown(context: CliContext, data: string): Promise<ShutDownReport> {
  const report: ShutDownReport = { sandboxes: 0, nodeAgent: 'absent', controlPlane: 'absent' };
  // A folder that never had a server is not touched.
  if (!existsSync(layoutOf(data).instanceFile)) return report;
  const onWait = (pid: number) => context.out.note(`waiting for another sandlot (pid ${pid}) …`);
  await withServer(data, context.isRoot, onWait, (server) => endAll(context, server, report));
  return report;
}

async function endAll(context: CliContext, server: LocalServer, report: ShutDownReport): Promise<void> {
  const { layout } = server;
  if (await isHealthy(server.controlPlane.health)) report.sandboxes = await endSandboxes(context, server);
  report.nodeAgent = await stopNodeAgent(context, server);
  report.controlPlane = await stopDaemon(layout.controlPlaneReady);
  for (const file of [layout.nodeSocket, layout.adminSocket, layout.nodeReady, layout.controlPlaneReady]) {
    rmSync(file, { force: true });
  }
  removeBuildBinding(layout.build);
  writeInstance(layout.instanceFile, { ...server.instance, options: {} });
}

/** Through the API, so that each record says that it was deleted; the count of those that lived. */
async function endSandboxes(context: CliContext, server: LocalServer): Promise<number> {
  if (!existsSync(server.layout.adminSocket)) return 0;
  const client = new Sandlot({ url: `unix:${server.layout.adminSocket}`, apiKey: '', maxRetries: 1 });
  try {
    const ids: string[] = [];
    for await (const info of client.sandboxes.list({ activeOnly: true, pageSize: 1_000 })) ids.push(info.id);
    if (ids.length === 0) return 0;
    context.out.note(`ending ${ids.length} sandbox${ids.length === 1 ? '' : 'es'} …`);
    const signal = AbortSignal.timeout(endSandboxesMs);
    await client.sandboxes.deleteMany({ ids }, { signal });
    return ids.length;
  } catch (error) {
    // The node agent ends what is left.
    context.out.note(
      `sandboxes could not be ended through the API: ${error instanceof Error ? error.message : error}`,
    );
    return 0;
  } finally {
    client.close();
  }
}

async function stopNodeAgent(context: CliContext, server: LocalServer): Promise<ShutDownReport['nodeAgent']> {
  const { layout, instance } = server;
  const ask = {
    by: () =>
      requestDaemon(
        { socketPath: layout.nodeSocket },
        'POST',
        '/v1/shutdown',
        { removeNetwork: true },
        10_000,
      ),
    withinMs: nodeEndMs,
  };
  const left = () => findLeftovers(layout, instance.instanceId, context.isRoot);
  // A ready file without its process: it died, or was stopped with its machines kept.
  const isUnclean = existsSync(layout.nodeReady) && !isAlive(readReadyFile(layout.nodeReady));
  const outcome = await stopDaemon(layout.nodeReady, ask);
  if (outcome === 'killed') context.out.note('the node agent had to be killed');
  if (!isUnclean && outcome !== 'killed' && left().length === 0) return outcome;
  context.out.note('cleaning up what the node agent left behind …');
  await startDaemon({ ...server.nodeAgent, args: [...server.nodeAgent.args, '--prebuild', 'none'] });
  await stopDaemon(layout.nodeReady, ask);
  const still = left();
  if (still.length > 0) {
    throw new CliError(`the server is stopped, but this is left on the host: ${still.join(', ')}`, {
      hint: `Run \`sandlot down\` again; the reason is in ${server.nodeAgent.logFile}.`,
    });
  }
  return 'cleaned-up';
}
