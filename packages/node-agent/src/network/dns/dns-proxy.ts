/**
 * The node agent's side of the DNS proxy: starts the process, tells it policies, answers its requests for
 * admission, starts it again when it dies. Owned by `../tap-networks.ts`.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { NetworkError } from '../contract.js';
import type { DnsProxyConfig, FromProxy, ResolvedAddress, SourcePolicy, ToProxy } from './dns-messages.js';

/** How to run the proxy. */
export interface DnsProxyOptions {
  config: Omit<DnsProxyConfig, 'type'>;
  /** Who it is; our own user by default. */
  runAs?: { uid: number; gid: number };
  /** Puts addresses of a name into a sandbox's sets; false if its policy does not list the name (any more). */
  admit(source: string, name: string, addresses: ResolvedAddress[]): Promise<boolean>;
  /** The main program; found beside this file by default. */
  mainPath?: string;
}

const maxAdmitAddresses = 64;
const readyDeadlineMs = 15_000;
const endDeadlineMs = 2_000;
const firstRestartMs = 100;
const lastRestartMs = 10_000;
/** One that ran this long did not fail at its start: the next restart is quick again. */
const steadyMs = 30_000;

/**
 * States: stopped, starting, running, waiting to start again. `start` and `close` are called once each; in
 * between it heals itself. Policies survive the process, so a new one knows all sandboxes before it answers.
 */
export class DnsProxy {
  private child: ChildProcess | undefined;
  private restartTimer: NodeJS.Timeout | undefined;
  private restartMs = firstRestartMs;
  private closed = false;
  private failure: string | undefined;
  private readonly policies = new Map<string, SourcePolicy>();

  constructor(private readonly options: DnsProxyOptions) {}

  /** Resolves when the proxy answers. Throws {@link NetworkError} `setup-failed` if its first start fails. */
  async start(): Promise<void> {
    if (this.child || this.closed) return;
    try {
      await this.launch();
    } catch (cause) {
      await this.close();
      throw cause;
    }
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  /** Why it is not running now, if so. */
  warning(): string | undefined {
    return this.failure && `The DNS proxy is not running and is started again: ${this.failure}`;
  }

  /** Names of this source are answered by this policy from now on. */
  setPolicy(source: string, policy: SourcePolicy): void {
    this.policies.set(source, policy);
    this.send({ type: 'policy', source, policy });
  }

  /** The source is gone: refused from now on. */
  forget(source: string): void {
    this.policies.delete(source);
    this.send({ type: 'forget', source });
  }

  /** Ends the process. Idempotent. */
  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.restartTimer);
    const child = this.child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
    if (child.connected) child.disconnect();
    const timer = setTimeout(() => child.kill('SIGKILL'), endDeadlineMs);
    await ended;
    clearTimeout(timer);
  }

  private async launch(): Promise<void> {
    const startedAt = Date.now();
    const child = spawn('setpriv', this.argv(), {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      // Not our environment: it may hold secrets, and options for Node that the proxy must not have.
      env: { PATH: process.env['PATH'] ?? '/usr/sbin:/usr/bin:/sbin:/bin' },
      cwd: '/',
    });
    this.child = child;
    let stderr = '';
    child.stderr!.on('data', (part: Buffer) => {
      stderr = `${stderr}${part.toString()}`.slice(-2_000);
    });
    // A send that meets the end of the process: its exit says it.
    child.on('error', () => {});
    const ready = new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        child.kill('SIGKILL');
        reject(
          new NetworkError(
            'setup-failed',
            `the DNS proxy was not ready within ${readyDeadlineMs} ms: ${stderr}`,
          ),
        );
      }, readyDeadlineMs);
      child.on('message', (received) => {
        const message = readMessage(received);
        if (!message) return;
        if (message.type === 'admit') this.answerAdmit(child, message);
        if (message.type === 'failed') stderr = message.message;
        if (message.type !== 'ready') return;
        clearTimeout(timer);
        this.failure = undefined;
        resolve();
      });
      const onEnd = (reason: string): void => {
        clearTimeout(timer);
        if (this.child !== child) return;
        this.child = undefined;
        this.failure = reason;
        reject(new NetworkError('setup-failed', `the DNS proxy could not be started: ${reason}`));
        if (Date.now() - startedAt > steadyMs) this.restartMs = firstRestartMs;
        this.restartLater();
      };
      child.once('error', (cause) => child.pid === undefined && onEnd(cause.message));
      child.once('exit', (code, signal) => onEnd(`${signal ?? `status ${code}`} ${stderr.trim()}`.trim()));
    });
    this.send({ type: 'config', ...this.options.config });
    for (const [source, policy] of this.policies) this.send({ type: 'policy', source, policy });
    await ready;
  }

  /** It begins as the user that it stays, with the one right to bind its port. Node itself may refuse to change its user (CVE-2024-22017). */
  private argv(): string[] {
    const { runAs } = this.options;
    const main = this.options.mainPath ?? findMain();
    return [
      '--no-new-privs',
      ...(runAs ? [`--reuid=${runAs.uid}`, `--regid=${runAs.gid}`, '--clear-groups'] : []),
      '--inh-caps=-all,+net_bind_service',
      '--ambient-caps=-all,+net_bind_service',
      '--bounding-set=-all,+net_bind_service',
      process.execPath,
      '--max-old-space-size=128',
      main,
    ];
  }

  private restartLater(): void {
    if (this.closed) return;
    this.restartTimer = setTimeout(() => {
      // A failure is noted by its exit, which also plans the next try.
      this.launch().catch(() => undefined);
    }, this.restartMs);
    this.restartMs = Math.min(this.restartMs * 2, lastRestartMs);
  }

  private answerAdmit(child: ChildProcess, message: Extract<FromProxy, { type: 'admit' }>): void {
    const { id, source, name, addresses } = message;
    this.options
      .admit(source, name, addresses)
      .catch(() => false)
      .then((ok) => {
        if (this.child === child) this.send({ type: 'admitted', id, ok });
      });
  }

  private send(message: ToProxy): void {
    if (this.child?.connected) this.child.send(message, () => {});
  }
}

/** The proxy reads untrusted bytes, so what it says is checked like a guest's words. */
function readMessage(received: unknown): FromProxy | undefined {
  if (typeof received !== 'object' || received === null) return undefined;
  const message = received as Partial<Extract<FromProxy, { type: 'admit' }>> & { message?: unknown };
  switch (received && (received as { type?: unknown }).type) {
    case 'ready':
      return { type: 'ready' };
    case 'failed':
      return { type: 'failed', message: String(message.message).slice(0, 500) };
    case 'admit': {
      const { id, source, name, addresses } = message;
      if (typeof id !== 'number' || typeof source !== 'string' || typeof name !== 'string') return undefined;
      if (!Array.isArray(addresses) || addresses.length > maxAdmitAddresses) return undefined;
      const wellFormed = addresses.every(
        (one) => typeof one?.address === 'string' && Number.isInteger(one.ttl),
      );
      return wellFormed ? { type: 'admit', id, source, name, addresses } : undefined;
    }
    default:
      return undefined;
  }
}

/** From compiled code it stands beside this file; tests that run the sources use what was built last. */
function findMain(): string {
  const beside = fileURLToPath(new URL('./dns-proxy-main.js', import.meta.url));
  return existsSync(beside) ? beside : beside.replace('/src/', '/dist/');
}
