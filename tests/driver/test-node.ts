/**
 * A node agent with real machines, alone: what a test of exec, files, images or faults needs, without
 * control plane and CLI. Has its own data folder, keys and network namespace; `close()` fails when
 * anything is left. Used by the tests in `tests/e2e` and `tests/long`.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';
import {
  chmodSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeInfo, NodeSandboxSpec, SandboxReport } from '@sandlot/protocol';
import { Sandlot } from '@sandlot/sdk';
import { ApiBridge } from './api-bridge.js';
import { guestAssets, inCheckout, pythonArchive, requireWholeHost, testKvm } from './checkout.js';
import { HostNamespace } from './host-namespace.js';
import { leftoversOf } from './leftovers.js';
import { askSocket } from './node-socket.js';
import { TestSandbox } from './test-sandbox.js';

/** How a node agent is started. */
export interface TestNodeOptions {
  /** More flags of `options.ts`. */
  flags?: string[];
  /** Import the Python image; yes if left out. */
  withPython?: boolean;
  /** Its data lies on a file system of this size, in MiB; the host's disk if left out. */
  dataMiB?: number;
  /** Of which kind; in memory if left out. */
  dataOn?: 'ext4';
  /** Called with the node's namespace before the node agent starts in it. */
  prepare?: (namespace: HostNamespace) => Promise<void>;
}

/** What a test sets of a sandbox; the rest is a small machine with a Python image. */
export type TestSpec = Partial<Omit<NodeSandboxSpec, 'sandboxId'>>;

/** Name under which the Python image is imported. */
export const pythonImage = 'python:3.11-slim';

/** A node agent of a test. */
export class TestNode {
  readonly instanceId = randomBytes(2).toString('hex');
  readonly folder = mkdtempSync('/tmp/slt-');
  readonly socketPath = join(this.folder, 'node.sock');
  readonly namespace = HostNamespace.open(`slt-${this.instanceId}`);
  readonly #privateKey: KeyObject;
  #child: ChildProcess | undefined;
  #bridge: ApiBridge | undefined;
  #sdk: Sandlot | undefined;
  #count = 0;

  private constructor(private readonly options: TestNodeOptions) {
    // Machines run as users of their own and must reach their files in here.
    chmodSync(this.folder, 0o711);
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    this.#privateKey = privateKey;
    writeFileSync(join(this.folder, 'gateway.pub'), publicKey.export({ type: 'spki', format: 'pem' }));
  }

  /** Starts one; resolves when it answers and has its image. */
  static async start(options: TestNodeOptions = {}): Promise<TestNode> {
    requireWholeHost();
    const node = new TestNode(options);
    try {
      if (options.dataMiB) node.#mountData(options.dataMiB);
      await options.prepare?.(node.namespace);
      await node.startAgent();
      node.#bridge = await ApiBridge.open({
        socketPath: node.socketPath,
        privateKey: node.#privateKey,
        report: (id) => node.report(id),
      });
      node.#sdk = new Sandlot({ url: node.#bridge.url, apiKey: 'none' });
      if (options.withPython ?? true) await node.importArchive(createReadStream(pythonArchive), pythonImage);
      return node;
    } catch (cause) {
      await node.close().catch(() => undefined);
      throw new Error(`the test node did not start: ${(cause as Error).message}\n${node.log(20)}`, { cause });
    }
  }

  /** The stand-in for the control plane. */
  get bridge(): ApiBridge {
    if (!this.#bridge) throw new Error('the node is not started');
    return this.#bridge;
  }

  /** The SDK, as far as a node alone can serve it: handles of sandboxes. */
  get sdk(): Sandlot {
    if (!this.#sdk) throw new Error('the node is not started');
    return this.#sdk;
  }

  /** Process id of the node agent. */
  get pid(): number {
    const pid = this.#child?.pid;
    if (!pid) throw new Error('the node agent does not run');
    return pid;
  }

  /** Folder of all that the node agent keeps. */
  get dataFolder(): string {
    return join(this.folder, 'node');
  }

  /** Starts the node agent's process on the data folder; for a restart after `killAgent` too. */
  async startAgent(): Promise<void> {
    const log = openSync(join(this.folder, 'node.log'), 'a');
    const [program, args] = this.namespace.command([
      process.execPath,
      '--enable-source-maps',
      inCheckout('packages/node-agent/dist/main.js'),
      ...['--data', this.dataFolder, '--socket', this.socketPath, '--instance', this.instanceId],
      ...['--public-key', join(this.folder, 'gateway.pub'), '--guest-assets', guestAssets],
      ...['--ready-file', join(this.folder, 'ready.json'), '--prebuild', 'none', '--pool-size', '2'],
      ...['--kvm', testKvm],
      ...(this.options.flags ?? []),
    ]);
    rmSync(join(this.folder, 'ready.json'), { force: true });
    // nsenter becomes the node agent: the pid is the agent's.
    this.#child = spawn(program, args, { stdio: ['ignore', log, log], cwd: '/' });
    const child = this.#child;
    await this.#until('the node agent is ready', 60_000, async () => {
      if (child.exitCode !== null || child.signalCode)
        throw new Error(`it ended: ${child.exitCode ?? child.signalCode}`);
      return existsSync(join(this.folder, 'ready.json'));
    });
  }

  /** `kill -9` of the node agent; its machines run on. */
  async killAgent(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  /** One request to the node agent's own API; throws for an error answer. */
  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const { status, text } = await askSocket(this.socketPath, method, path, body);
    if (status >= 400) throw new Error(`${method} ${path}: ${status} ${text}`);
    return JSON.parse(text) as T;
  }

  /** What the node says of itself. */
  info(): Promise<NodeInfo> {
    return this.ask('GET', '/v1/node');
  }

  /** All reports. */
  async reports(): Promise<SandboxReport[]> {
    return (await this.ask<{ sandboxes: SandboxReport[] }>('GET', '/v1/sandboxes')).sandboxes;
  }

  /** The report of one sandbox. */
  async report(id: string): Promise<SandboxReport | undefined> {
    return (await this.reports()).find((report) => report.sandboxId === id);
  }

  /** Imports an archive under a name; throws what the node says when it is refused. */
  async importArchive(archive: Readable | Buffer, name: string): Promise<void> {
    const body = Buffer.isBuffer(archive) ? Readable.from([archive]) : archive;
    const { text } = await askSocket(
      this.socketPath,
      'POST',
      `/v1/images:import?name=${encodeURIComponent(name)}`,
      body,
      180_000,
    );
    const last = JSON.parse(text.trim().split('\n').at(-1) ?? '{}') as {
      done?: unknown;
      error?: { message: string };
    };
    if (!last.done) throw new Error(`import of ${name}: ${last.error?.message ?? text}`);
  }

  /** Asks for a sandbox and does not wait. */
  async request(spec: TestSpec = {}): Promise<TestSandbox> {
    const id = `t${this.instanceId}x${this.#count++}`;
    const sandbox = new TestSandbox(this, id, spec.generation ?? 1);
    await this.ask('PUT', `/v1/sandboxes/${id}`, { ...this.#specOf(id), ...spec });
    return sandbox;
  }

  #specOf(id: string): NodeSandboxSpec {
    return {
      sandboxId: id,
      generation: 1,
      image: pythonImage,
      vcpus: 1,
      memoryMiB: 512,
      cpuLimit: 0,
      diskBytes: 2 * 2 ** 30,
      hostname: id,
      env: {},
      secrets: {},
      egress: { generation: 0, allowlist: null, denylist: [] },
    };
  }

  /** A running sandbox. */
  async create(spec: TestSpec = {}): Promise<TestSandbox> {
    const sandbox = await this.request(spec);
    const report = await sandbox.untilState('running', 'failed', 'stopped');
    if (report.state !== 'running')
      throw new Error(`${sandbox.id} did not start: ${report.reason} ${report.message}`);
    return sandbox;
  }

  /** Asks for copies of a running sandbox and does not wait until they run. */
  async requestFork(
    source: TestSandbox,
    count: number,
    change: TestSpec = {},
    generation?: number,
  ): Promise<TestSandbox[]> {
    const ids = Array.from({ length: count }, () => `t${this.instanceId}x${this.#count++}`);
    const copies = ids.map((id) => ({ ...this.#specOf(id), ...change, sandboxId: id }));
    const report = await this.report(source.id);
    await this.ask('POST', `/v1/sandboxes/${source.id}/fork`, {
      generation: generation ?? report?.generation,
      copies,
    });
    return ids.map((id) => this.sandbox(id));
  }

  /** One that is here. */
  sandbox(id: string): TestSandbox {
    return new TestSandbox(this, id, 1);
  }

  /** Newest lines of the node agent's log. */
  log(lines = 40): string {
    const path = join(this.folder, 'node.log');
    return existsSync(path) ? readFileSync(path, 'utf8').trimEnd().split('\n').slice(-lines).join('\n') : '';
  }

  /** Ends everything; throws when anything is left on the host. */
  async close(): Promise<void> {
    this.#sdk?.close();
    const left: string[] = [];
    try {
      await this.#shutDown();
      if (this.options.dataMiB) execFileSync('umount', [this.dataFolder]);
      left.push(...leftoversOf(this.instanceId, this.folder), ...this.namespace.contents());
    } finally {
      if (left.length > 0) process.stderr.write(`node agent's log:\n${this.log(60)}\n`);
      for (const text of left) {
        const pid = /^process (\d+)/.exec(text)?.[1];
        if (pid) process.kill(Number(pid), 'SIGKILL');
      }
      await this.#bridge?.close();
      this.namespace.close();
      rmSync(this.folder, { recursive: true, force: true });
    }
    if (left.length > 0) throw new Error(`left behind by the node agent:\n${left.join('\n')}`);
  }

  #mountData(mebibytes: number): void {
    mkdirSync(this.dataFolder);
    if (this.options.dataOn === 'ext4') {
      const file = join(this.folder, 'data.ext4');
      execFileSync('mke2fs', ['-q', '-t', 'ext4', '-m', '0', file, `${mebibytes}M`]);
      execFileSync('mount', ['-o', 'loop', file, this.dataFolder]);
      chmodSync(this.dataFolder, 0o711);
      return;
    }
    const options = `size=${mebibytes}m,mode=0711`;
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'sandlot-test', this.dataFolder]);
  }

  async #shutDown(): Promise<void> {
    const child = this.#child;
    if (!child) return;
    if (child.exitCode !== null || child.signalCode) await this.startAgent();
    const running = this.#child as ChildProcess;
    const ended = new Promise((resolve) => running.once('exit', resolve));
    await this.ask('POST', '/v1/shutdown', { removeNetwork: true });
    await Promise.race([
      ended,
      pause(60_000, undefined, { ref: false }).then(() => {
        running.kill('SIGKILL');
        throw new Error(`the node agent did not end within a minute\n${this.log()}`);
      }),
    ]);
  }

  async #until(what: string, timeoutMs: number, check: () => Promise<boolean>): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!(await check())) {
      if (performance.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}\n${this.log()}`);
      await pause(30);
    }
  }
}
