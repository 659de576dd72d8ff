/**
 * The sandboxes of a node with machines of the fake driver, for tests of what happens when something fails on the way:
 * records, snapshots and guests are real, images and networks are not. A test steps in where it writes, restores or saves.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ImageError } from '@sandlot/images';
import type { NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import {
  createFakeDriver,
  type FakeStep,
  type Machine,
  type SnapshotRequest,
  type Template,
  type VmmDriver,
} from '@sandlot/vmm';
import { type Logger, pino } from 'pino';
import { expect } from 'vitest';
import { CheckpointFolder, type CheckpointRecord } from '../src/checkpoints/checkpoint-record.js';
import { CheckpointStore } from '../src/checkpoints/checkpoint-store.js';
import type { NetworkHandle, SandboxNetwork } from '../src/network/network.js';
import { openUserNetworks } from '../src/network/user-networks.js';
import { RecordFolder, type SandboxRecord } from '../src/sandbox/record.js';
import { Sandboxes } from '../src/sandbox/sandboxes.js';
import { Semaphore } from '../src/sandbox/semaphore.js';
import type { StartParts } from '../src/sandbox/start-parts.js';
import { ChainMerger } from '../src/snapshots/chain-merger.js';
import { Checksums } from '../src/snapshots/checksums.js';
import { SnapshotStore } from '../src/snapshots/snapshot-store.js';

const checkout = fileURLToPath(new URL('../../../', import.meta.url));
const agentBinary =
  process.env['SANDLOT_TEST_AGENT'] ??
  join(checkout, 'guest-agent/target/x86_64-unknown-linux-gnu/release/sandlot-agent');

/** Why these tests cannot run here; undefined: they can. */
export const missing = existsSync(agentBinary)
  ? undefined
  : `the guest agent is not built (${agentBinary}); run make build`;

const noRoom = (): Error => Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' });

/** One node. */
export class FakeHost {
  readonly root = mkdtempSync(join(tmpdir(), 'sandlot-fake-host-'));
  readonly records = new RecordFolder(join(this.root, 'sandboxes'));
  readonly snapshots = new SnapshotStore(join(this.root, 'snapshots'), false);
  /** Who holds the image. */
  readonly holders = new Set<string>();
  /** Reports as they were told. */
  readonly told: SandboxReport[] = [];
  /** Called before a record is written; what it throws is thrown there. */
  beforeWrite: (record: SandboxRecord) => void | Promise<void> = () => undefined;
  /** Called at steps of the driver. */
  atStep: (step: FakeStep) => void | Promise<void> = () => undefined;
  /** Called when a machine is to be saved, and when it was. */
  atSave: (phase: 'before' | 'after', machine: Machine) => void | Promise<void> = () => undefined;
  /** Called before a copy gets its image. */
  beforeShare: () => void | Promise<void> = () => undefined;
  /** Called before a network's policy is applied. */
  beforePolicy: () => void = () => undefined;
  sandboxes!: Sandboxes;
  checkpoints!: CheckpointStore;
  #template!: Template;
  #parts!: StartParts;
  readonly #log: Logger = pino({ level: process.env['LOG'] ?? 'silent' });
  /** Indexes of networks that are in use. */
  readonly #networks = new Set<number>();

  /** Makes its first sandboxes. */
  async open(): Promise<this> {
    await this.snapshots.open();
    execFileSync('mke2fs', ['-q', '-t', 'ext4', '-b', '4096', join(this.root, 'rootfs'), '16M']);
    const write = this.records.write.bind(this.records);
    this.records.write = async (record, forGood) => {
      await this.beforeWrite(record);
      await write(record, forGood);
    };
    const driver = this.#driver();
    const shape = { vcpus: 1, memoryMiB: 256 };
    const network = { kind: 'user', restricted: true } as const;
    this.#template = await driver.buildTemplate(
      { folder: join(this.root, 'template'), shape, network, warm: async () => undefined },
      new AbortController().signal,
    );
    this.#parts = this.#makeParts(driver);
    await this.restart();
    return this;
  }

  /** Networks that are in use. */
  get networksOut(): number {
    return this.#networks.size;
  }

  /** Lets go of what there is, and takes it over as the next node agent would. */
  async restart(): Promise<void> {
    this.sandboxes?.detachAll();
    // What no record names is reaped.
    this.#networks.clear();
    const { driver, images, checksums } = this.#parts;
    this.checkpoints = new CheckpointStore({
      ...{ snapshots: this.snapshots, images, checksums, driver: await driver.describe() },
      folder: new CheckpointFolder(join(this.root, 'checkpoints')),
    });
    await this.checkpoints.open();
    this.sandboxes = new Sandboxes(this.#parts, this.checkpoints, this.#log);
    this.sandboxes.hub.subscribe((report) => this.told.push(report));
    await this.sandboxes.open();
  }

  /** A running sandbox. */
  async create(id: string, change: Partial<NodeSandboxSpec> = {}): Promise<void> {
    await this.sandboxes.put({ ...specOf(id), ...change });
    await this.until(id, 'running');
  }

  report(id: string): SandboxReport | undefined {
    return this.sandboxes.get(id)?.report;
  }

  /** Waits for a state. */
  async until(id: string, ...states: SandboxReport['state'][]): Promise<void> {
    await expect
      .poll(() => this.report(id)?.state, { timeout: 10_000 })
      .toSatisfy((state: SandboxReport['state']) => states.includes(state));
  }

  pause(id: string): Promise<SandboxReport> {
    return this.sandboxes.pause(id, this.report(id)?.generation ?? 0);
  }

  async resume(id: string): Promise<SandboxReport> {
    return this.sandboxes.resume(id, { generation: (this.report(id)?.generation ?? 0) + 1 });
  }

  fork(id: string, ...copyIds: string[]): Promise<SandboxReport[]> {
    const generation = this.report(id)?.generation ?? 0;
    return this.sandboxes.fork(id, { generation, copies: copyIds.map((copyId) => specOf(copyId)) });
  }

  /** A checkpoint of this name, durable. */
  async checkpoint(id: string, checkpointId: string, memory: boolean): Promise<CheckpointRecord> {
    const generation = this.report(id)?.generation ?? 0;
    const made = await this.sandboxes.checkpoint(id, { generation, checkpointId, memory });
    await this.checkpoints.settle(made);
    return made;
  }

  async delete(id: string): Promise<void> {
    const { generation } = await this.sandboxes.delete(id, this.report(id)?.generation ?? 1);
    await this.sandboxes.acknowledge(id, generation);
  }

  /** Records cannot be written from now on, until the function that is returned is called. */
  fillDisk(which: (record: SandboxRecord) => boolean = () => true): () => void {
    this.beforeWrite = (record) => {
      if (which(record)) throw noRoom();
    };
    return () => {
      this.beforeWrite = () => undefined;
    };
  }

  /** Folders of snapshots. */
  get snapshotIds(): string[] {
    return readdirSync(this.snapshots.root);
  }

  /** Ends all; fails when anything is left. */
  async close(): Promise<void> {
    this.beforeWrite = () => undefined;
    try {
      await this.sandboxes.endAll('The test is over.');
      for (const { id, spec } of this.sandboxes.list()) await this.sandboxes.acknowledge(id, spec.generation);
      for (const { id } of await this.checkpoints.list()) await this.checkpoints.remove(id);
      expect(this.snapshotIds).toEqual([]);
      expect([...this.holders]).toEqual([]);
      expect(this.networksOut).toBe(0);
      expect(readdirSync(this.records.root)).toEqual([]);
    } finally {
      rmSync(this.root, { recursive: true, force: true });
    }
  }

  #driver(): VmmDriver {
    const inner = createFakeDriver({ agentBinary, intercept: (step) => this.atStep(step) });
    const watch = <T>(machine: T): T => {
      if (typeof machine === 'object' && machine !== null && 'snapshotting' in machine)
        this.#watchSaves(machine as unknown as Machine);
      return machine;
    };
    return {
      describe: () => inner.describe(),
      buildTemplate: (request, signal) => inner.buildTemplate(request, signal),
      restore: async (request, signal) => watch(await inner.restore(request, signal)),
      adopt: async (handle) => watch(await inner.adopt(handle)),
      freezeDisk: async (request) => inner.freezeDisk?.(request),
      close: () => inner.close(),
    };
  }

  #watchSaves(machine: Machine): void {
    const { snapshotting } = machine;
    if (!snapshotting) return;
    const save = async (request: SnapshotRequest, signal: AbortSignal) => {
      await this.atSave('before', machine);
      signal.throwIfAborted();
      const saved = await snapshotting.save(request, signal);
      await this.atSave('after', machine);
      return saved;
    };
    Object.assign(machine, { snapshotting: { ...snapshotting, save } });
  }

  #makeParts(driver: VmmDriver): StartParts {
    const { holders, root } = this;
    const config = { env: [], user: '', workingDir: '/', entrypoint: [], cmd: [] };
    const images = {
      isReady: async () => true,
      acquire: async (_reference: string, holder: string) => {
        holders.add(holder);
        return { path: join(root, 'rootfs'), image: { digest: 'sha256:0', config } };
      },
      share: async (other: string, holder: string) => {
        await this.beforeShare();
        if (!holders.has(other)) throw new ImageError('not-found', `${other} holds no image`);
        holders.add(holder);
      },
      release: async (holder: string) => void holders.delete(holder),
      holders: async () => [...holders],
    };
    const cpuLimits = {
      reap: async () => undefined,
      remove: async () => undefined,
      apply: async () => undefined,
    };
    const templates = { get: async () => this.#template };
    const inner = openUserNetworks({ because: 'fake-machines' });
    const networks = {
      ...{ mode: 'user', reap: async () => undefined },
      acquire: async () => this.#watchNetwork(await inner.acquire()),
      adopt: async (handle: NetworkHandle) => {
        const network = await inner.adopt(handle);
        return network && this.#watchNetwork(network);
      },
    };
    const { records, snapshots } = this;
    const checksums = new Checksums();
    const chains = () => this.sandboxes.list();
    const merger = new ChainMerger({ driver, snapshots, checksums, log: this.#log, chains });
    const parts = { driver, images, networks, templates, snapshots, records, cpuLimits, merger, checksums };
    return { ...parts, restores: new Semaphore(4) } as unknown as StartParts;
  }

  #watchNetwork(network: SandboxNetwork): SandboxNetwork {
    const { index } = network.handle;
    this.#networks.add(index);
    const release = network.release.bind(network);
    const applyPolicy = network.applyPolicy.bind(network);
    return Object.assign(network, {
      release: async () => {
        this.#networks.delete(index);
        await release();
      },
      applyPolicy: async (policy: NodeSandboxSpec['egress']) => {
        this.beforePolicy();
        await applyPolicy(policy);
      },
    });
  }
}

function specOf(id: string): NodeSandboxSpec {
  return {
    ...{ sandboxId: id, generation: 1, image: 'x', vcpus: 1, memoryMiB: 256, cpuLimit: 0 },
    ...{ diskBytes: 2 ** 27, hostname: id, env: {}, secrets: {}, tokensFrom: 1 },
    egress: { generation: 0, allowlist: [], denylist: null },
  };
}
