/**
 * The node agent: puts its parts together, opens them in the order in which they depend on each
 * other, and closes them in reverse. Machines outlive it; `close('remove')` ends them too.
 */
import { existsSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { type ImageStore, openStoreProcess } from '@sandlot/images';
import { createFakeDriver, createQemuDriver, type VmmDriver } from '@sandlot/vmm';
import type { Logger } from 'pino';
import { CheckpointFolder } from './checkpoints/checkpoint-record.js';
import { CheckpointStore } from './checkpoints/checkpoint-store.js';
import { Gateway } from './gateway/gateway.js';
import { TokenVerifier } from './gateway/token.js';
import { createNodeServer } from './http/server.js';
import { NodeMetrics } from './metrics.js';
import type { Networks } from './network/network.js';
import { openTapNetworks } from './network/tap-networks.js';
import { type NoTapsReason, openUserNetworks } from './network/user-networks.js';
import { describeNode } from './node-info.js';
import type { NodeAgentOptions } from './options.js';
import { CpuLimits } from './sandbox/cpu-limits.js';
import { RecordFolder } from './sandbox/record.js';
import { Sandboxes } from './sandbox/sandboxes.js';
import { Semaphore } from './sandbox/semaphore.js';
import { ChainMerger } from './snapshots/chain-merger.js';
import { Checksums } from './snapshots/checksums.js';
import { SnapshotStore } from './snapshots/snapshot-store.js';
import { TemplateStore } from './templates/template-store.js';

/** How often what is left over is looked for, ms. */
const reapIntervalMs = 300_000;

/** A running node agent. */
export interface NodeAgent {
  /** `keep`: machines go on and are adopted by the next start. `remove`: they end, and nothing is left on the host. */
  close(mode: 'keep' | 'remove'): Promise<void>;
}

/** Starts everything and listens. Throws what the first part that fails throws. */
export async function startNodeAgent(
  options: NodeAgentOptions,
  log: Logger,
  onShutdownRequest: (mode: 'keep' | 'remove') => void,
): Promise<NodeAgent> {
  const folder = (name: string) => join(options.dataFolder, name);
  await mkdir(options.dataFolder, { recursive: true, mode: 0o711 });
  const records = new RecordFolder(folder('sandboxes'));
  // Refuses records of a newer version before anything is touched.
  const found = await records.readAll();
  const verifier = await TokenVerifier.open(options.publicKeyPath);
  const driver = createDriver(options, folder('vmm'));
  const info = await driver.describe();
  log.info({ accelerator: info.accelerator, reason: info.reason, version: info.version }, 'machines');
  const images = await openImages(options, folder('images'), log);
  const networks = await openNetworks(options, folder('network'));
  await networks.start();
  const templates = new TemplateStore({ folder: folder('templates'), driver, networks, log });
  await templates.open();
  const isRoot = process.getuid?.() === 0;
  const snapshots = new SnapshotStore(folder('snapshots'), isRoot && options.driver === 'qemu');
  await snapshots.open();
  const checksums = new Checksums();
  const checkpoints = new CheckpointStore({
    ...{ snapshots, checksums, images, driver: info },
    folder: new CheckpointFolder(folder('checkpoints')),
  });
  await checkpoints.open();
  const cpuLimits = await CpuLimits.open(options.instanceId);
  const merger = new ChainMerger({ driver, snapshots, checksums, log, chains: () => sandboxes.list() });
  const sandboxes: Sandboxes = new Sandboxes(
    {
      driver,
      images,
      networks,
      templates,
      snapshots,
      merger,
      checksums,
      records,
      cpuLimits,
      restores: new Semaphore(4 * availableParallelism()),
    },
    checkpoints,
    log,
  );
  await sandboxes.open(found);
  merger.look();
  const describe = () => describeNode({ options, info, networks, cpuLimits, sandboxes, records, snapshots });
  const server = createNodeServer({
    sandboxes,
    checkpoints,
    images,
    snapshots,
    gateway: new Gateway(sandboxes, verifier, log),
    metrics: new NodeMetrics(sandboxes, merger),
    describe,
    shutdown: onShutdownRequest,
    log,
  });
  await listen(server, options.socketPath);
  const reaper = setInterval(() => {
    sandboxes.reap().catch((error: unknown) => log.error({ err: error }, 'reaping failed'));
  }, reapIntervalMs);
  void prebuild(options, templates, log);
  return {
    async close(mode) {
      clearInterval(reaper);
      server.close();
      server.closeAllConnections();
      await merger.close();
      if (mode === 'remove') {
        await sandboxes.endAll('Sandlot was stopped on this host.');
        await cpuLimits.reap(() => false);
      } else sandboxes.detachAll();
      // A build holds a network of its own.
      await templates.close();
      await networks.close(mode);
      await images.close();
      await driver.close();
      await rm(options.socketPath, { force: true });
    },
  };
}

function createDriver(options: NodeAgentOptions, stateFolder: string): VmmDriver {
  if (options.driver === 'fake') return createFakeDriver({ agentBinary: options.agentBinary });
  const { guestAssets, kvm, cpuModel } = options;
  return createQemuDriver({ assets: guestAssets, stateFolder, kvm, cpuModel });
}

function openImages(options: NodeAgentOptions, root: string, log: Logger): Promise<ImageStore> {
  const { insecureRegistries, runChildrenAs } = options;
  return openStoreProcess({ root, insecureRegistries, ...(runChildrenAs ? { runChildrenAs } : {}) }, (how) =>
    log.warn({ how }, 'the process of the image store ended; starting another'),
  );
}

async function openNetworks(options: NodeAgentOptions, stateFolder: string): Promise<Networks> {
  const isRoot = process.getuid?.() === 0;
  const because = whyNoTaps(options, isRoot);
  if (because !== undefined) {
    return openUserNetworks({
      because,
      rootlessNetwork: options.rootlessNetwork,
      ...(isRoot && options.driver === 'qemu' ? { firstUid: userNetworkUid(options.instanceId) } : {}),
    });
  }
  return openTapNetworks({
    instanceId: options.instanceId,
    stateFolder,
    poolSize: options.poolSize,
    allowPrivate: options.allowPrivate,
    allowHostPorts: options.allowHostPorts,
    ...(options.subnet ? { subnet: options.subnet } : {}),
    ...(options.runChildrenAs ? { runDnsAs: options.runChildrenAs } : {}),
  });
}

function whyNoTaps(options: NodeAgentOptions, isRoot: boolean): NoTapsReason | undefined {
  if (options.driver === 'fake') return 'fake-machines';
  if (!isRoot) return 'not-root';
  return existsSync('/dev/net/tun') ? undefined : 'no-tun';
}

/** Above the uids of networks with taps (2,000,000 and up); 4,096 for each instance. */
function userNetworkUid(instanceId: string): number {
  return 3_000_000 + Number.parseInt(instanceId, 16) * 4_096;
}

async function listen(server: Server, socketPath: string): Promise<void> {
  await mkdir(dirname(socketPath), { recursive: true });
  await rm(socketPath, { force: true });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(socketPath, resolve);
  });
}

async function prebuild(options: NodeAgentOptions, templates: TemplateStore, log: Logger): Promise<void> {
  for (const shape of options.prebuild) {
    await templates
      .get(shape)
      .catch((error: unknown) => log.error({ err: error, shape }, 'building a template failed'));
  }
}
