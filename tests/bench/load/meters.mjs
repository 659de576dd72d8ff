// What is measured beside the load itself: times, the daemons' memory and CPU from /proc, their event loops from /metrics,
// and the loop of a process that does nothing, which shows how quiet the host is. Used by main.mjs and the phases.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { collectGarbage } from '../product/collect.mjs';

/** Times and failures of one kind of call. */
export class Times {
  #ms = [];
  errors = [];

  /** Times `work`; a failure is kept and answered as undefined. */
  async of(work) {
    const begin = performance.now();
    try {
      const result = await work();
      this.#ms.push(performance.now() - begin);
      return result;
    } catch (error) {
      this.errors.push(error);
      return undefined;
    }
  }

  get count() {
    return this.#ms.length;
  }

  quantile(fraction) {
    const sorted = [...this.#ms].sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? Number.NaN;
  }

  toString() {
    const at = [0.5, 0.9, 0.99, 1].map((fraction) => `${Math.round(this.quantile(fraction) * 10) / 10}`);
    return `${this.count}, p50 p90 p99 max ${at.join(' ')} ms, ${this.errors.length} errors`;
  }
}

/** The two daemons of a server on this machine. */
export class Daemons {
  constructor(client, status) {
    const { processes, dataFolder } = status;
    this.client = client;
    this.controlPlane = processes.find(({ role }) => role === 'control plane').pid;
    this.nodeAgent = processes.find(({ role }) => role === 'node agent').pid;
    this.nodeSocket = path.join(dataFolder, 'run/node.sock');
  }

  /** Resident memory of each, MiB. */
  memory() {
    return { controlPlane: residentMiB(this.controlPlane), nodeAgent: residentMiB(this.nodeAgent) };
  }

  /** The same after a garbage collection in each: what they keep. */
  async collectedMemory() {
    await collectGarbage(this.controlPlane);
    await collectGarbage(this.nodeAgent);
    return this.memory();
  }

  /** CPU time that each has used, seconds. */
  cpu() {
    return { controlPlane: cpuSeconds(this.controlPlane), nodeAgent: cpuSeconds(this.nodeAgent) };
  }

  /** Longest delay of each event loop since the last look, ms. */
  async loops() {
    const [controlPlane, nodeAgent] = await Promise.all([
      readMetrics(this.client.address),
      readMetrics({ socketPath: this.nodeSocket }),
    ]);
    return { controlPlane: loopOf(controlPlane), nodeAgent: loopOf(nodeAgent) };
  }
}

/** Looks at something every `everyMs` until `stop()`, which answers all that was seen. */
export function watch(look, everyMs) {
  const seen = [];
  let pending = Promise.resolve();
  const timer = setInterval(() => {
    pending = pending.then(async () => seen.push(await look())).catch((error) => seen.push({ error }));
  }, everyMs);
  return async () => {
    clearInterval(timer);
    await pending;
    return seen;
  };
}

const idleProgram = `
const { monitorEventLoopDelay } = await import('node:perf_hooks');
const loop = monitorEventLoopDelay({ resolution: 10 });
loop.enable();
process.stdin.on('data', () => {}).on('end', () => console.log(loop.max / 1e6) ?? process.exit(0));
`;

/** The event loop of a process that does nothing; `stop()` answers its longest delay in ms. */
export function startIdleLoop() {
  const child = spawn(process.execPath, ['--input-type=module', '-e', idleProgram], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (chunk) => (said += chunk));
  const closed = new Promise((resolve) => child.once('close', resolve));
  return async () => {
    child.stdin.end();
    await closed;
    return Number(said);
  };
}

function residentMiB(pid) {
  return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))[1]) / 1024;
}

function cpuSeconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  // utime and stime in ticks of a hundredth of a second (proc_pid_stat(5)).
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function readMetrics(address) {
  return new Promise((resolve, reject) => {
    const request = http.get({ ...address, path: '/metrics', agent: false }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk) => (text += chunk));
      answer.once('end', () => resolve(text)).once('error', reject);
    });
    request.once('error', reject);
  });
}

function loopOf(text) {
  return Number(/^sandlot_event_loop_delay_max_seconds (\S+)$/m.exec(text)[1]) * 1000;
}
