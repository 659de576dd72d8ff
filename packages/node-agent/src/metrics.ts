/** The node's numbers for Prometheus: `GET /metrics`. */

import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { SandboxReport } from '@sandlot/protocol';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Sandboxes } from './sandbox/sandboxes.js';
import type { ChainMerger } from './snapshots/chain-merger.js';

/** Collects from the registry of sandboxes and its reports, and from the merger of layers. */
export class NodeMetrics {
  readonly #registry = new Registry();
  readonly #stages = new Histogram({
    name: 'sandlot_start_stage_seconds',
    help: 'Time that each stage of a start took',
    labelNames: ['stage'],
    buckets: [0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60, 300],
    registers: [this.#registry],
  });

  readonly #loop = monitorEventLoopDelay({ resolution: 10 });

  constructor(sandboxes: Pick<Sandboxes, 'list' | 'hub'>, merger: Pick<ChainMerger, 'counts'>) {
    collectDefaultMetrics({ register: this.#registry, prefix: 'sandlot_node_' });
    new Gauge({
      name: 'sandlot_sandboxes',
      help: 'Sandboxes that this node knows, by state',
      labelNames: ['state'],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { report } of sandboxes.list()) this.inc({ state: report.state });
      },
    });
    const loop = this.#loop;
    loop.enable();
    // Under the name that the control plane gives its own.
    new Gauge({
      name: 'sandlot_event_loop_delay_max_seconds',
      help: 'Longest delay of the event loop since the last scrape.',
      registers: [this.#registry],
      collect() {
        this.set(loop.max / 1e9);
        loop.reset();
      },
    });
    this.#countMerges(merger);
    const observed = new Set<string>();
    sandboxes.hub.subscribe((report) => this.#observe(report, observed));
  }

  /** Prometheus text. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }

  #countMerges(merger: Pick<ChainMerger, 'counts'>): void {
    const registers = [this.#registry];
    new Counter({
      name: 'sandlot_layer_merges_total',
      help: 'Layers of disks that were made of several, and attempts that failed',
      labelNames: ['result'],
      registers,
      collect() {
        this.reset();
        this.inc({ result: 'done' }, merger.counts.merged);
        this.inc({ result: 'failed' }, merger.counts.failed);
      },
    });
    for (const [unit, help, read] of [
      ['bytes', 'Bytes that merges of layers copied', () => merger.counts.bytes],
      ['seconds', 'Time that merges of layers took, one at a time', () => merger.counts.seconds],
    ] as const)
      new Counter({
        name: `sandlot_layer_merge_${unit}_total`,
        help,
        registers,
        collect() {
          this.reset();
          this.inc(read());
        },
      });
  }

  #observe(report: SandboxReport, observed: Set<string>): void {
    if (report.state === 'stopped' || report.state === 'failed') observed.delete(report.sandboxId);
    if (report.state !== 'running' || observed.has(report.sandboxId)) return;
    observed.add(report.sandboxId);
    for (const [stage, ms] of Object.entries(report.timings)) this.#stages.observe({ stage }, ms / 1000);
  }
}
