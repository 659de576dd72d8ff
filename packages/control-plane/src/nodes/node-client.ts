/**
 * The node agent's API as methods (`protocol/node-api.ts`). Commands only: what comes back enters
 * records through `app/apply-report.ts`, nowhere else.
 */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type {
  EgressPolicy,
  ImageDetails,
  ImageInfo,
  NodeCheckpoint,
  NodeCheckpointOrder,
  NodeFork,
  NodeInfo,
  NodeResume,
  NodeSandboxSpec,
  PullImage,
  SandboxReport,
} from '@sandlot/protocol';
import type { NodeTransport } from './node-request.js';

/** Deadlines in milliseconds. */
const deadlines = {
  read: 10_000,
  start: 15_000,
  /** A node ends the machine, its disk and its network before it answers. */
  remove: 60_000,
  policy: 20_000,
  /** The memory of a large machine goes to a disk first. */
  pause: 330_000,
  /** Until the head of the answer; the stream itself ends with the work. */
  imageStream: 30_000,
  prune: 120_000,
};

/** A part of a file in a sandbox. */
export interface NodeFile {
  found: boolean;
  contentBase64?: string;
  size?: number;
}

/** One node. */
export class NodeClient {
  constructor(private readonly transport: NodeTransport) {}

  /** The same node, for what one request of a client asks: its id stands in the node's log too. */
  onBehalfOf(requestId: string | undefined): NodeClient {
    return requestId === undefined ? this : new NodeClient(this.transport.onBehalfOf(requestId));
  }

  /** What it offers and runs. */
  info(): Promise<NodeInfo> {
    return this.transport.json({ method: 'GET', path: '/v1/node', timeoutMs: deadlines.read });
  }

  /** The endless stream of reports. */
  openReports(signal: AbortSignal): Promise<IncomingMessage> {
    return this.transport.open({ method: 'GET', path: '/v1/reports', timeoutMs: deadlines.read, signal });
  }

  /** Every sandbox that it knows. */
  async list(): Promise<SandboxReport[]> {
    const answer = await this.transport.json<{ sandboxes: SandboxReport[] }>({
      method: 'GET',
      path: '/v1/sandboxes',
      timeoutMs: deadlines.read,
    });
    return answer.sandboxes;
  }

  /** Starts a sandbox; the same generation again is answered alike. */
  start(spec: NodeSandboxSpec): Promise<SandboxReport> {
    const path = `/v1/sandboxes/${encodeURIComponent(spec.sandboxId)}`;
    return this.transport.json({ method: 'PUT', path, body: spec, timeoutMs: deadlines.start });
  }

  /** Ends a sandbox; resolves once nothing of it is left. */
  remove(id: string, generation: number): Promise<SandboxReport> {
    const path = `${sandboxPath(id)}?generation=${generation}`;
    return this.transport.json({ method: 'DELETE', path, timeoutMs: deadlines.remove });
  }

  /** Pauses a sandbox; resolves once it is saved and its machine gone. */
  pause(id: string, generation: number): Promise<SandboxReport> {
    const path = `${sandboxPath(id)}/pause?generation=${generation}`;
    return this.transport.json({ method: 'POST', path, timeoutMs: deadlines.pause });
  }

  /** Gives a paused sandbox, or with a checkpoint a running one, a machine of a raised generation; how it fares is in its reports. */
  resume(id: string, body: NodeResume): Promise<SandboxReport> {
    return this.transport.json({
      method: 'POST',
      path: `${sandboxPath(id)}/resume`,
      body,
      timeoutMs: deadlines.start,
    });
  }

  /** Makes copies of a running sandbox; resolves once they are saved and on their way, all of them or none. */
  async fork(id: string, body: NodeFork): Promise<SandboxReport[]> {
    const answer = await this.transport.json<{ reports: SandboxReport[] }>({
      method: 'POST',
      path: `${sandboxPath(id)}/fork`,
      body,
      timeoutMs: deadlines.pause,
    });
    return answer.reports;
  }

  /** Makes a checkpoint of a running or paused sandbox; resolves once the instant is taken. */
  checkpoint(sandboxId: string, body: NodeCheckpointOrder): Promise<NodeCheckpoint> {
    return this.transport.json({
      method: 'POST',
      path: `${sandboxPath(sandboxId)}/checkpoints`,
      body,
      timeoutMs: deadlines.pause,
    });
  }

  /** Resolves once a checkpoint is on the node's disk for good. */
  settleCheckpoint(id: string): Promise<NodeCheckpoint> {
    const path = `${checkpointPath(id)}/settle`;
    return this.transport.json({ method: 'POST', path, timeoutMs: deadlines.pause });
  }

  /** Resolves when a checkpoint can be restored there; `quick` does not read its files. */
  checkCheckpoint(id: string, memory: boolean, quick: boolean): Promise<NodeCheckpoint> {
    const path = `${checkpointPath(id)}/check?memory=${memory ? 1 : 0}${quick ? '&quick=1' : ''}`;
    return this.transport.json({ method: 'POST', path, timeoutMs: deadlines.pause });
  }

  /** One checkpoint. */
  getCheckpoint(id: string): Promise<NodeCheckpoint> {
    return this.transport.json({ method: 'GET', path: checkpointPath(id), timeoutMs: deadlines.read });
  }

  /** Every checkpoint that it has. */
  async checkpoints(): Promise<NodeCheckpoint[]> {
    const path = '/v1/checkpoints';
    const answer = await this.transport.json<{ checkpoints: NodeCheckpoint[] }>({
      method: 'GET',
      path,
      timeoutMs: deadlines.read,
    });
    return answer.checkpoints;
  }

  /** Lets it forget a checkpoint, also one that it does not have. */
  async removeCheckpoint(id: string): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: checkpointPath(id), timeoutMs: deadlines.remove });
  }

  /** Lets the node forget an end that is recorded here. */
  async acknowledge(id: string, generation: number): Promise<void> {
    const path = `${sandboxPath(id)}/acknowledge?generation=${generation}`;
    await this.transport.json({ method: 'POST', path, timeoutMs: deadlines.read });
  }

  /** Output of the start command. */
  async logs(id: string): Promise<string> {
    const path = `${sandboxPath(id)}/logs`;
    return (await this.transport.json<{ logs: string }>({ method: 'GET', path, timeoutMs: deadlines.read }))
      .logs;
  }

  /** Reads a small file of a sandbox. */
  readFile(id: string, file: string, length: number): Promise<NodeFile> {
    const body = { path: file, length };
    return this.transport.json({
      method: 'POST',
      path: `${sandboxPath(id)}/read-file`,
      body,
      timeoutMs: deadlines.read,
    });
  }

  /** Puts a network policy in force; resolves with the generation that is. */
  async putEgress(id: string, policy: EgressPolicy): Promise<number> {
    const path = `${sandboxPath(id)}/egress-policy`;
    const answer = await this.transport.json<{ appliedGeneration: number }>({
      method: 'PUT',
      path,
      body: policy,
      timeoutMs: deadlines.policy,
    });
    return answer.appliedGeneration;
  }

  /** Images in its store. */
  async images(): Promise<ImageInfo[]> {
    return (
      await this.transport.json<{ images: ImageInfo[] }>({
        method: 'GET',
        path: '/v1/images',
        timeoutMs: deadlines.read,
      })
    ).images;
  }

  /** One image. */
  image(reference: string): Promise<ImageDetails> {
    return this.transport.json({ method: 'GET', path: imagePath(reference), timeoutMs: deadlines.read });
  }

  /** Pulls; the answer is NDJSON of progress. */
  pullImage(pull: PullImage, signal: AbortSignal): Promise<IncomingMessage> {
    return this.transport.open({
      method: 'POST',
      path: '/v1/images:pull',
      body: pull,
      timeoutMs: deadlines.imageStream,
      signal,
    });
  }

  /** Imports an archive from a stream; the answer is NDJSON of progress. */
  importImage(
    name: string,
    archive: Readable,
    length: string | undefined,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    return this.transport.open({
      method: 'POST',
      path: `/v1/images:import?name=${encodeURIComponent(name)}`,
      stream: archive,
      headers: {
        'content-type': 'application/octet-stream',
        ...(length === undefined ? {} : { 'content-length': length }),
      },
      timeoutMs: deadlines.imageStream,
      signal,
    });
  }

  /** Removes an image. */
  removeImage(reference: string): Promise<{ removed: boolean }> {
    return this.transport.json({
      method: 'DELETE',
      path: imagePath(reference),
      timeoutMs: deadlines.remove,
    });
  }

  /** Removes what no sandbox uses. */
  pruneImages(): Promise<{ removed: string[]; freedBytes: number }> {
    return this.transport.json({ method: 'POST', path: '/v1/images:prune', timeoutMs: deadlines.prune });
  }

  /** Closes idle connections. */
  close(): void {
    this.transport.close();
  }
}

function sandboxPath(id: string): string {
  return `/v1/sandboxes/${encodeURIComponent(id)}`;
}

function checkpointPath(id: string): string {
  return `/v1/checkpoints/${encodeURIComponent(id)}`;
}

function imagePath(reference: string): string {
  return `/v1/images/${encodeURIComponent(reference)}`;
}
