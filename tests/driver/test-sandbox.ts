/** One sandbox of a test node, as a test speaks of it. Made by `TestNode`. */
import { setTimeout as pause } from 'node:timers/promises';
import type { SandboxReport } from '@sandlot/protocol';
import {
  type AgentAccess,
  AgentSandbox,
  type ExecOptions,
  type RunOptions,
  type RunResult,
  type Sandbox,
  type SandboxProcess,
} from '@sandlot/sdk';
import type { TestNode } from './test-node.js';

/** Longest start on an emulated machine of a busy host, a template to build included. */
const stateTimeoutMs = 240_000;

/** A sandbox. Commands and files go through the SDK. */
export class TestSandbox {
  readonly #sdk: Sandbox;

  constructor(
    private readonly node: TestNode,
    readonly id: string,
    readonly generation: number,
  ) {
    this.#sdk = node.sdk.sandboxes.handle(id);
  }

  get files(): Sandbox['files'] {
    return this.#sdk.files;
  }

  /** Runs a command to its end. */
  run(argv: readonly string[], options?: RunOptions): Promise<RunResult> {
    return this.#sdk.run(argv, { timeoutMs: 40_000, ...options });
  }

  /** Runs a line of shell to its end. */
  sh(line: string, options?: RunOptions): Promise<RunResult> {
    return this.run(['/bin/sh', '-c', line], options);
  }

  /** Output of a shell line that must succeed, trimmed. */
  async out(line: string, options?: RunOptions): Promise<string> {
    const result = await this.sh(line, options);
    if (result.exitCode !== 0) throw new Error(`"${line}" ended with ${result.exitCode}: ${result.stderr}`);
    return result.stdout.trim();
  }

  /** Output of a Python program that must succeed, trimmed. */
  async python(program: string, options?: RunOptions): Promise<string> {
    const result = await this.run(['python3', '-c', program], options);
    if (result.exitCode !== 0) throw new Error(`the program ended with ${result.exitCode}: ${result.stderr}`);
    return result.stdout.trim();
  }

  /** Starts a command. */
  exec(argv: readonly string[], options?: ExecOptions): Promise<SandboxProcess> {
    return this.#sdk.exec(argv, options);
  }

  /** Attaches to a session. */
  attach(session: string): Promise<SandboxProcess> {
    return this.#sdk.attach(session);
  }

  /** What an agent in the default view of this sandbox is given. */
  get agentAccess(): AgentAccess {
    const { bridge } = this.node;
    return {
      sandboxId: this.id,
      url: `${bridge.url}/gw/test/${this.id}`,
      token: bridge.token(this.id, this.generation, 3600, true),
      expiresAt: new Date(Date.now() + 3_600_000).toISOString(),
    };
  }

  /** The sandbox as that agent has it; close it. */
  openAsAgent(): AgentSandbox {
    return new AgentSandbox(this.agentAccess);
  }

  /** What the node reports. */
  async report(): Promise<SandboxReport> {
    const report = await this.node.report(this.id);
    if (!report) throw new Error(`the node does not know ${this.id}`);
    return report;
  }

  /** Waits for one of the states. */
  async untilState(...states: SandboxReport['state'][]): Promise<SandboxReport> {
    const deadline = performance.now() + stateTimeoutMs;
    for (;;) {
      const report = await this.report();
      if (states.includes(report.state)) return report;
      if (performance.now() > deadline) {
        throw new Error(
          `${this.id} is ${report.state} ${report.stage ?? ''}, not ${states}\n${this.node.log()}`,
        );
      }
      await pause(40);
    }
  }

  /** Waits until `check` answers true. */
  async until(
    what: string,
    check: () => Promise<boolean>,
    timeoutMs = 15_000,
    intervalMs = 100,
  ): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!(await check())) {
      if (performance.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`);
      await pause(intervalMs);
    }
  }

  /** Processes in the guest whose command line has `marker`; the search itself has it not. */
  async processesWith(marker: string): Promise<number> {
    const found = await this.python(
      `import os
marker = bytes(reversed(${JSON.stringify([...marker].reverse().join(''))}.encode()))
me = os.getpid()
count = 0
for pid in filter(str.isdigit, os.listdir('/proc')):
    try: count += int(pid) != me and marker in open(f'/proc/{pid}/cmdline', 'rb').read()
    except OSError: pass
print(count)`,
    );
    return Number(found);
  }

  /** Output of the start command. */
  async logs(): Promise<string> {
    return (await this.node.ask<{ logs: string }>('GET', `/v1/sandboxes/${this.id}/logs`)).logs;
  }

  /** Deletes it on the node and lets the node forget it. */
  async delete(): Promise<SandboxReport> {
    const path = `/v1/sandboxes/${this.id}`;
    // A resume raises it.
    const generation = (await this.node.report(this.id))?.generation ?? this.generation;
    const report = await this.node.ask<SandboxReport>('DELETE', `${path}?generation=${generation}`);
    await this.node.ask('POST', `${path}/acknowledge?generation=${generation}`, {});
    return report;
  }
}
