/** `/metrics` for Prometheus: numbers only, no names and no ids, so that it may be open. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { AppContext } from '../app/context.js';
import { countSandboxes } from '../app/system-status.js';

/** Metrics of one server. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #loop = monitorEventLoopDelay({ resolution: 10 });
  readonly #requests: Histogram<'operation' | 'status'>;
  readonly #created: Counter;
  readonly #gateway: Counter<'outcome'>;

  constructor(private readonly app: AppContext) {
    const registers = [this.#registry];
    this.#requests = new Histogram({
      name: 'sandlot_api_request_seconds',
      help: 'Time to answer a request of the API.',
      labelNames: ['operation', 'status'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30],
      registers,
    });
    this.#created = new Counter({
      name: 'sandlot_sandboxes_created_total',
      help: 'Sandboxes created.',
      registers,
    });
    this.#gateway = new Counter({
      name: 'sandlot_gateway_requests_total',
      help: 'Requests passed on to nodes.',
      labelNames: ['outcome'],
      registers,
    });
    this.#loop.enable();
    this.#addGauges();
  }

  /** Notes an answered request of the API. */
  observe(operation: string, status: number, seconds: number): void {
    this.#requests.observe({ operation, status: String(status) }, seconds);
    if (operation === 'createSandbox' && status === 201) this.#created.inc();
  }

  /** Notes a request that was passed on to a node. */
  countGateway(outcome: string): void {
    this.#gateway.inc({ outcome });
  }

  /** The page. */
  async text(): Promise<{ type: string; text: string }> {
    return { type: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  /** Ends the measurement of the event loop. */
  close(): void {
    this.#loop.disable();
  }

  #addGauges(): void {
    const registers = [this.#registry];
    const { app } = this;
    const loop = this.#loop;
    new Gauge({
      name: 'sandlot_sandboxes',
      help: 'Live sandboxes by state.',
      labelNames: ['state'],
      registers,
      async collect() {
        for (const [state, count] of Object.entries(await countSandboxes(app))) this.set({ state }, count);
      },
    });
    new Gauge({
      name: 'sandlot_nodes_reachable',
      help: 'Nodes whose report stream is open.',
      registers,
      collect() {
        this.set(app.fleet.links.filter((link) => link.connected).length);
      },
    });
    new Gauge({
      name: 'sandlot_event_loop_delay_max_seconds',
      help: 'Longest delay of the event loop since the last scrape.',
      registers,
      collect() {
        this.set(loop.max / 1e9);
        loop.reset();
      },
    });
    new Gauge({
      name: 'sandlot_control_plane_memory_bytes',
      help: 'Resident memory of the control plane.',
      registers,
      collect() {
        this.set(process.memoryUsage.rss());
      },
    });
  }
}
