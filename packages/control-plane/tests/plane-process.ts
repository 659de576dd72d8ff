/**
 * The built control plane as a process of its own, with a fake node: for tests that kill it, or that take the room
 * from its disk. Where it need not be a process, `world.ts` is quicker.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { FakeNode } from './fake-node.js';
import { type Answer, send } from './world.js';

const main = fileURLToPath(new URL('../dist/main.js', import.meta.url));

/** One data folder, one node, and the process while it runs. */
export class PlaneProcess {
  readonly folder = mkdtempSync(join(tmpdir(), 'sandlot-plane-'));
  readonly adminSocket = join(this.folder, 'admin.sock');
  readonly node = new FakeNode(join(this.folder, 'node.sock'));
  key = '';
  #child: ChildProcess | undefined;
  #address = '';

  /** Starts it; `data` and `log` are in the folder unless told otherwise, and without `log` nothing is logged. */
  async start({
    data = join(this.folder, 'data'),
    log,
  }: {
    data?: string;
    log?: string;
  } = {}): Promise<void> {
    const ready = join(this.folder, 'ready.json');
    rmSync(ready, { force: true });
    const port = await findPort();
    this.#address = `http://127.0.0.1:${port}`;
    const flags = {
      data,
      keys: join(this.folder, 'keys'),
      listen: `127.0.0.1:${port}`,
      'node-socket': this.node.socketPath,
      'admin-socket': this.adminSocket,
      'ready-file': ready,
      'log-level': log === undefined ? 'silent' : 'debug',
    };
    const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
    const output = log === undefined ? 'ignore' : openSync(log, 'a');
    const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', output, 'inherit'] });
    if (typeof output === 'number') closeSync(output);
    this.#child = child;
    const until = Date.now() + 20_000;
    while (!existsSync(ready)) {
      if (Date.now() > until || child.exitCode !== null)
        throw new Error(`the control plane did not start (exit ${child.exitCode}); is it built?`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(JSON.parse(readFileSync(ready, 'utf8'))).toMatchObject({ pid: child.pid, version: '0.1.0' });
  }

  /** The first key, by the admin socket; calls carry it from then on. */
  async makeKey(): Promise<void> {
    const body = { user: 'admin' };
    const made = await send<{ key: string }>('/api/v1/keys', 'POST', { body }, this.adminSocket);
    expect(made.status).toBe(201);
    this.key = made.body.key;
  }

  /** Calls the API. */
  call<T>(method: string, path: string, body?: unknown): Promise<Answer<T>> {
    return send<T>(`${this.#address}/api/v1${path}`, method, { key: this.key, body });
  }

  /** It has not ended by itself. */
  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Sends a signal and waits for the end; gives the exit code. */
  async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return null;
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
    child.kill(signal);
    return ended;
  }

  /** Ends all and removes the folder. */
  async close(): Promise<void> {
    await this.end('SIGKILL');
    await this.node.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A port that was free a moment ago. */
async function findPort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
