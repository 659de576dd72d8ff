/**
 * A node agent without machines, for the control plane's tests: the contract of `node-api.ts` over a
 * unix socket, with everything about it under the test's control. It can be stopped and started
 * again with what it knows kept, as the real one does.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type {
  EgressPolicy,
  NodeCheckpoint,
  NodeCheckpointOrder,
  NodeFork,
  NodeInfo,
  NodeResume,
  NodeSandboxSpec,
  SandboxReport,
} from '@sandlot/protocol';

/** A sandbox on it. */
export interface FakeSandbox {
  spec: NodeSandboxSpec;
  report: SandboxReport;
}

type Answer = { status?: number; body: unknown };

/** The fake. */
export class FakeNode {
  readonly sandboxes = new Map<string, FakeSandbox>();
  readonly tombstones = new Map<string, number>();
  readonly checkpoints = new Map<string, NodeCheckpoint>();
  readonly files = new Map<string, string>();
  /** Bodies of pulls. */
  readonly pulls: unknown[] = [];
  readonly acknowledged: string[] = [];
  /** Every request but the report stream, `METHOD path`. */
  readonly calls: string[] = [];
  /** Request ids that came along, by call. */
  readonly requestIds = new Map<string, string | undefined>();
  offer = { vcpus: 1024, memoryMiB: 1_048_576, diskGiB: 10_000 };
  diskTotalGiB = 0;
  nodeId = 'node-1';
  /** Start sandboxes by themselves; false: the test moves them by {@link change}. */
  autoRun = true;
  /** Awaited before an answer. */
  gate: (
    kind:
      | ('start' | 'remove' | 'egress' | 'info' | 'pause' | 'resume' | 'fork')
      | ('checkpoint' | 'settle' | 'check' | 'forget'),
    id: string,
  ) => Promise<void> = async () => undefined;
  /** Answers a start with an error instead. */
  refuseStart: Answer | undefined;
  /** Answers a pause with an error instead. */
  refusePause: Answer | undefined;
  /** Answers a fork with an error instead. */
  refuseFork: Answer | undefined;
  /** Answers a checkpoint, its settling, or the look at one, with an error instead. */
  refuseCheckpoint: Answer | undefined;
  refuseSettle: Answer | undefined;
  refuseCheck: Answer | undefined;
  /** Answers a resume with an error instead. */
  refuseResume: Answer | undefined;
  /** Which copy of the next fork does not start. */
  failCopy: number | undefined;
  /** Why a resume comes to nothing. */
  failResume: string | undefined;
  /** A resume is accepted, and nothing comes of it. */
  holdResume = false;
  /** Serves `/gw/…`. */
  gateway: (request: IncomingMessage, response: ServerResponse) => void = (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"ok":true}');
  };
  #server: Server | undefined;
  readonly #sockets = new Set<Socket>();
  readonly #streams = new Set<ServerResponse>();

  constructor(readonly socketPath: string) {}

  /** Gives no answer to requests of a kind from now on; resolves when the first is here. */
  hangAt(kind: Parameters<FakeNode['gate']>[0]): Promise<void> {
    return new Promise((reached) => {
      this.gate = async (asked) => {
        if (asked !== kind) return;
        reached();
        await new Promise(() => undefined);
      };
    });
  }

  async start(): Promise<void> {
    const server = createServer((request, response) => void this.#serve(request, response));
    server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.socketPath, resolve);
    });
    this.#server = server;
  }

  /** As a kill -9: connections break, sandboxes stay. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = new Promise((resolve) => server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Changes a report and sends it. */
  change(id: string, change: Partial<SandboxReport>): void {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) throw new Error(`the fake node has no sandbox ${id}`);
    sandbox.report = { ...sandbox.report, ...change };
    this.publish(sandbox.report);
  }

  /** Sends a line to every listener. */
  publish(line: unknown): void {
    for (const stream of this.#streams) stream.write(`${JSON.stringify(line)}\n`);
  }

  /** Makes one run, as the real one would. */
  run(id: string): void {
    this.change(id, { state: 'starting', stage: 'restore' });
    this.change(id, {
      state: 'running',
      startedAtUnixMs: Date.now(),
      timings: { image: 1, restore: 2, ready: 3 },
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://node');
    if (url.pathname.startsWith('/gw/')) {
      this.gateway(request, response);
      return;
    }
    if (url.pathname === '/v1/reports') {
      this.#streamReports(response);
      return;
    }
    this.calls.push(`${request.method} ${url.pathname}`);
    this.requestIds.set(
      `${request.method} ${url.pathname}`,
      request.headers['x-request-id'] as string | undefined,
    );
    try {
      const { status = 200, body } = await this.#answer(request, url);
      if (response.destroyed) return;
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    } catch (error) {
      response.writeHead(500).end(JSON.stringify({ code: 'internal', message: String(error) }));
    }
  }

  #streamReports(response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    for (const { report } of this.sandboxes.values()) response.write(`${JSON.stringify(report)}\n`);
    response.write('{"synced":true}\n');
    this.#streams.add(response);
    response.once('close', () => this.#streams.delete(response));
  }

  async #answer(request: IncomingMessage, url: URL): Promise<Answer> {
    const [, , kind, id = '', action] = url.pathname.split('/').map(decodeURIComponent);
    if (kind === 'node') {
      await this.gate('info', '');
      return { body: this.#info() };
    }
    if (kind === 'checkpoints') return this.#checkpointCall(request, id, action);
    if (kind === 'sandboxes') return this.#sandboxCall(request, url, id, action);
    return this.#imageCall(request, url, kind ?? '', id);
  }

  async #sandboxCall(
    request: IncomingMessage,
    url: URL,
    id: string,
    action: string | undefined,
  ): Promise<Answer> {
    const generation = Number(url.searchParams.get('generation'));
    if (id === '') return { body: { sandboxes: [...this.sandboxes.values()].map(({ report }) => report) } };
    if (action === undefined && request.method === 'PUT')
      return this.#put(id, (await json(request)) as NodeSandboxSpec);
    if (action === undefined && request.method === 'DELETE') return this.#remove(id, generation);
    if (action === 'acknowledge') return this.#acknowledge(id);
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined)
      return { status: 404, body: { code: 'not-found', message: 'no such sandbox' } };
    if (action === 'checkpoints') return this.#checkpoint(id, (await json(request)) as NodeCheckpointOrder);
    if (action === 'fork') return this.#fork(id, (await json(request)) as NodeFork);
    if (action === 'pause') return this.#pause(id);
    if (action === 'resume') return this.#resume(sandbox, (await json(request)) as NodeResume);
    if (action === 'logs') return { body: { logs: `log of ${id}` } };
    if (action === 'read-file') {
      const { path } = (await json(request)) as { path: string };
      const text = this.files.get(`${id}:${path}`);
      return {
        body:
          text === undefined
            ? { found: false }
            : { found: true, size: text.length, contentBase64: Buffer.from(text).toString('base64') },
      };
    }
    if (action === 'egress-policy') {
      const policy = (await json(request)) as EgressPolicy;
      await this.gate('egress', id);
      sandbox.spec.egress = policy;
      sandbox.report.egressGeneration = policy.generation;
      return { body: { appliedGeneration: policy.generation } };
    }
    return { status: 404, body: { code: 'not-found', message: 'no such route' } };
  }

  async #put(id: string, spec: NodeSandboxSpec): Promise<Answer> {
    await this.gate('start', id);
    if (this.refuseStart !== undefined) return this.refuseStart;
    if ((this.tombstones.get(id) ?? -1) >= spec.generation)
      return { status: 409, body: { code: 'conflict', message: 'that generation was ended here' } };
    const known = this.sandboxes.get(id);
    if (known !== undefined) return { status: 202, body: known.report };
    const report: SandboxReport = {
      sandboxId: id,
      generation: spec.generation,
      state: 'pending',
      stage: 'image',
      timings: {},
    };
    this.sandboxes.set(id, { spec, report });
    this.publish(report);
    if (this.autoRun) setImmediate(() => this.sandboxes.get(id)?.report.state === 'pending' && this.run(id));
    return { status: 202, body: report };
  }

  async #fork(id: string, { copies }: NodeFork): Promise<Answer> {
    await this.gate('fork', id);
    if (this.refuseFork !== undefined) return this.refuseFork;
    const reports = copies.map((spec): SandboxReport => {
      const { sandboxId, generation } = spec;
      const report = { sandboxId, generation, state: 'pending', stage: 'network', timings: {} } as const;
      this.sandboxes.set(sandboxId, { spec, report });
      this.publish(report);
      return report;
    });
    const { failCopy } = this;
    this.failCopy = undefined;
    setImmediate(() => {
      for (const [index, { sandboxId }] of copies.entries()) {
        if (index !== failCopy) this.run(sandboxId);
        else this.change(sandboxId, { state: 'failed', reason: 'START_FAILED', message: 'the test says no' });
      }
    });
    return { status: 202, body: { reports } };
  }

  async #checkpoint(sandboxId: string, { checkpointId, memory }: NodeCheckpointOrder): Promise<Answer> {
    await this.gate('checkpoint', sandboxId);
    if (this.refuseCheckpoint !== undefined) return this.refuseCheckpoint;
    const made: NodeCheckpoint = {
      ...{ id: checkpointId, sandboxId, memory, durable: false },
      consistency: memory ? 'crash' : 'application',
      ...{ diskBytes: 10 * 2 ** 30, ownBytes: 100, sharedBytes: 1000, createdAtUnixMs: Date.now() },
    };
    this.checkpoints.set(checkpointId, made);
    return { body: made };
  }

  async #checkpointCall(request: IncomingMessage, id: string, action: string | undefined): Promise<Answer> {
    if (id === '') return { body: { checkpoints: [...this.checkpoints.values()] } };
    const known = this.checkpoints.get(id);
    if (request.method === 'DELETE') {
      await this.gate('forget', id);
      this.checkpoints.delete(id);
      return { body: {} };
    }
    if (known === undefined)
      return { status: 404, body: { code: 'not-found', message: `no checkpoint ${id} on this node` } };
    if (action === 'settle') {
      await this.gate('settle', id);
      if (this.refuseSettle !== undefined) return this.refuseSettle;
      known.durable = true;
    }
    if (action === 'check') {
      await this.gate('check', id);
      if (this.refuseCheck !== undefined) return this.refuseCheck;
    }
    return { body: known };
  }

  async #pause(id: string): Promise<Answer> {
    await this.gate('pause', id);
    if (this.refusePause !== undefined) return this.refusePause;
    this.change(id, { state: 'pausing' });
    this.change(id, { state: 'paused' });
    return { body: this.sandboxes.get(id)?.report };
  }

  async #resume({ spec, report }: FakeSandbox, { generation }: NodeResume): Promise<Answer> {
    await this.gate('resume', spec.sandboxId);
    if (this.refuseResume !== undefined) return this.refuseResume;
    if (generation <= report.generation && report.state !== 'resuming')
      return { status: 409, body: { code: 'conflict', message: 'that generation was here' } };
    spec.generation = generation;
    const { wanted: _, ...rest } = report;
    const fake = this.sandboxes.get(spec.sandboxId) as FakeSandbox;
    fake.report = { ...rest, generation };
    this.change(spec.sandboxId, { state: 'resuming' });
    const { failResume } = this;
    if (this.holdResume) return { status: 202, body: fake.report };
    setImmediate(() =>
      this.change(
        spec.sandboxId,
        failResume === undefined ? { state: 'running' } : { state: 'paused', message: failResume },
      ),
    );
    return { status: 202, body: fake.report };
  }

  async #remove(id: string, generation: number): Promise<Answer> {
    await this.gate('remove', id);
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) {
      this.tombstones.set(id, generation);
      return { body: { sandboxId: id, generation, state: 'stopped', reason: 'DELETED', timings: {} } };
    }
    if (sandbox.report.state !== 'stopped' && sandbox.report.state !== 'failed')
      this.change(id, { state: 'stopped', reason: 'DELETED', endedAtUnixMs: Date.now() });
    return { body: sandbox.report };
  }

  #acknowledge(id: string): Answer {
    this.acknowledged.push(id);
    const sandbox = this.sandboxes.get(id);
    if (sandbox !== undefined) {
      this.sandboxes.delete(id);
      this.tombstones.set(id, sandbox.spec.generation);
    }
    return { body: {} };
  }

  async #imageCall(request: IncomingMessage, url: URL, kind: string, reference: string): Promise<Answer> {
    if (kind === 'images:import') {
      let bytes = 0;
      for await (const chunk of request) bytes += (chunk as Buffer).length;
      return { body: { done: { ...image, reference: url.searchParams.get('name'), contentBytes: bytes } } };
    }
    if (kind === 'images:pull') {
      let text = '';
      for await (const chunk of request) text += String(chunk);
      this.pulls.push(JSON.parse(text));
      return { body: { error: { code: 'not-found', message: 'no such image' } } };
    }
    if (kind === 'images:prune') return { body: { removed: ['sha256:1'], freedBytes: 5 } };
    if (kind !== 'images') return { status: 404, body: { code: 'not-found', message: 'no such route' } };
    if (reference === '') return { body: { images: [image] } };
    if (reference !== image.reference)
      return { status: 404, body: { code: 'not-found', message: `no image ${reference}` } };
    if (request.method === 'DELETE')
      return { status: 409, body: { code: 'in-use', message: 'a sandbox uses it' } };
    return {
      body: {
        ...image,
        config: { env: [], user: '', workingDir: '/', entrypoint: [], cmd: [], exposedPorts: [] },
        layers: [],
        platform: { os: 'linux', architecture: 'amd64' },
      },
    };
  }

  #info(): NodeInfo {
    return {
      nodeId: this.nodeId,
      version: '0.1.0',
      pid: process.pid,
      accelerator: 'fake',
      acceleratorReason: 'a test',
      networkMode: 'none',
      dataFolder: '/nowhere',
      offer: this.offer,
      diskTotalGiB: this.diskTotalGiB,
      warnings: [],
      processes: [],
      machines: [],
    };
  }
}

const image = {
  reference: 'registry.example.org:5000/team/python:3.11-slim',
  digest: 'sha256:abc',
  rootfsBytes: 100,
  contentBytes: 50,
  createdAt: '2026-01-01T00:00:00.000Z',
  inUseBy: 0,
  labels: {},
};

async function json(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return JSON.parse(Buffer.concat(chunks).toString('utf8'));
}

/** An answer of random bytes that is written as fast as its reader takes it. */
export class LargeAnswer {
  /** Bytes written so far. */
  produced = 0;
  readonly #chunk = randomBytes(1024 * 1024);

  constructor(readonly total: number) {}

  sendTo(outgoing: ServerResponse): void {
    outgoing.writeHead(200, { 'content-length': String(this.total) });
    const more = (): void => {
      while (this.produced < this.total) {
        this.produced += this.#chunk.length;
        if (!outgoing.write(this.#chunk)) return void outgoing.once('drain', more);
      }
      outgoing.end();
    };
    more();
  }
}
