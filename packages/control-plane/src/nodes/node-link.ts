/**
 * The standing connection to one node: holds its report stream open, opens it again with growing
 * pauses when it breaks, and knows whether the node can be reached. If either process dies, the
 * next stream begins with all sandboxes, so nothing that happened meanwhile is missed.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { NodeInfo, SandboxReport } from '@sandlot/protocol';
import type { Logger } from 'pino';
import { NodeClient } from './node-client.js';
import { NodeTransport } from './node-request.js';
import { readReportLines } from './report-lines.js';

/** Who hears what comes up. Handlers are awaited one after another, so reports keep their order. */
export interface LinkListener {
  /** The node has answered what it is. */
  onInfo(info: NodeInfo): Promise<void>;
  onReport(nodeId: string, report: SandboxReport): Promise<void>;
  /** All sandboxes of the node have been reported; `seen` are their ids, asked for at `openedAt`. */
  onSynced(nodeId: string, seen: ReadonlySet<string>, openedAt: number): Promise<void>;
}

/** A stream without a line for this long is dead; the node sends one every 10 s. */
const silenceLimitMs = 30_000;

/** Pauses before another try. */
const firstPauseMs = 50;
const longestPauseMs = 2_000;

/** A node as its link sees it. */
export class NodeLink {
  readonly client: NodeClient;
  readonly #stop = new AbortController();
  #info: NodeInfo | undefined;
  #connected = false;
  #downSince: number;
  #running: Promise<void> | undefined;

  constructor(
    socketPath: string,
    private readonly listener: LinkListener,
    private readonly log: Logger,
    private readonly now: () => number,
  ) {
    this.client = new NodeClient(new NodeTransport(socketPath));
    this.#downSince = now();
  }

  /** What it last said of itself; undefined before its first answer. */
  get info(): NodeInfo | undefined {
    return this.#info;
  }

  /** True while the report stream is open and in step. */
  get connected(): boolean {
    return this.#connected;
  }

  /** Since when it cannot be reached; null while it can. */
  get downSince(): number | null {
    return this.#connected ? null : this.#downSince;
  }

  /** Begins to connect. */
  start(): void {
    this.#running ??= this.#run();
  }

  /** Asks anew what it is. */
  async refresh(): Promise<void> {
    await this.#learn(await this.client.info());
  }

  /** Ends the stream and the tries. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.client.close();
  }

  async #run(): Promise<void> {
    let wait = firstPauseMs;
    let lastText = '';
    while (!this.#stop.signal.aborted) {
      try {
        await this.#follow(() => {
          wait = firstPauseMs;
          lastText = '';
        });
      } catch (error) {
        const text = error instanceof Error ? error.message : String(error);
        // One line for one trouble, not one for each try.
        if (!this.#stop.signal.aborted && text !== lastText)
          this.log.warn({ err: error }, 'the node cannot be reached');
        lastText = text;
      }
      if (this.#connected) this.#downSince = this.now();
      this.#connected = false;
      const jittered = wait * (0.75 + Math.random() / 2);
      await pause(jittered, undefined, { signal: this.#stop.signal }).catch(() => undefined);
      wait = Math.min(longestPauseMs, wait * 2);
    }
  }

  /** One stream, from its opening to its end. */
  async #follow(onOpen: () => void): Promise<void> {
    const info = await this.client.info();
    await this.#learn(info);
    const openedAt = this.now();
    const ended = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, ended.signal]);
    const stream = await this.client.openReports(signal);
    let watchdog: NodeJS.Timeout | undefined;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => ended.abort(new Error('the report stream is silent')), silenceLimitMs);
    };
    const seen = new Set<string>();
    try {
      alive();
      for await (const line of readReportLines(stream)) {
        alive();
        if ('keepalive' in line) continue;
        if ('synced' in line) {
          onOpen();
          this.#connected = true;
          await this.listener.onSynced(info.nodeId, seen, openedAt);
          this.log.info({ nodeId: info.nodeId, sandboxes: seen.size }, 'in step with the node');
          continue;
        }
        if (!this.#connected) seen.add(line.sandboxId);
        await this.listener.onReport(info.nodeId, line);
      }
    } finally {
      clearTimeout(watchdog);
      ended.abort();
    }
  }

  async #learn(info: NodeInfo): Promise<void> {
    this.#info = info;
    await this.listener.onInfo(info);
  }
}
