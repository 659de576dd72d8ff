/**
 * A whole Sandlot as a user has it: started by `sandlot up`, used through the CLI and the API, ended by
 * `sandlot down`. Own data, HOME and network namespace; `close()` fails when anything is left on the host.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { guestAssets, inCheckout, requireWholeHost, testKvm, testSlowness } from './checkout.js';
import { HostNamespace } from './host-namespace.js';
import { leftoversOf } from './leftovers.js';

/** What a CLI command has answered. */
export interface CliAnswer {
  code: number;
  stdout: string;
  stderr: string;
}

/** How a CLI command is called. */
export interface CliOptions {
  stdin?: string;
  env?: Record<string, string>;
  timeoutMs?: number;
}

/** Where the server listens in its namespace. */
const listen = '127.0.0.1:7171';

/** Node's program that asks one request from inside the namespace; arguments: URL, method, key, body. */
const askProgram = `
const [url, method, key, body] = process.argv.slice(1);
const headers = { ...(key ? { authorization: 'Bearer ' + key } : {}), ...(body ? { 'content-type': 'application/json' } : {}) };
const answer = await fetch(url, { method, headers, ...(body ? { body } : {}) });
process.stdout.write(JSON.stringify({ status: answer.status, text: await answer.text() }));
`;

/** What a test's server is started with. */
export interface TestServerOptions {
  /** `auto` lets it look for KVM, as a user's does. */
  kvm?: 'auto' | 'never' | undefined;
  /** More of `up`'s. */
  flags?: readonly string[];
  /** The image archive without which there is nothing to test; the Python image if left out. */
  archive?: string;
  /** What its namespace needs before, such as an `OutsideWorld`; that is closed before the server. */
  prepare?: (namespace: HostNamespace) => Promise<void>;
}

/** A server of a test. */
export class TestServer {
  readonly folder = mkdtempSync('/tmp/slt-');
  readonly data = join(this.folder, 'data');
  readonly url = `http://${listen}`;
  readonly namespace = HostNamespace.open(`slt-${this.folder.slice(-6)}`);

  private constructor(
    private readonly kvm: 'auto' | 'never',
    private readonly flags: readonly string[],
  ) {
    chmodSync(this.folder, 0o711);
    mkdirSync(join(this.folder, 'home'));
  }

  /** Starts one by `sandlot up --detach`. */
  static async start(options: TestServerOptions = {}): Promise<TestServer> {
    const { kvm = testKvm, flags = [], prepare } = options;
    requireWholeHost(options.archive);
    const server = new TestServer(kvm, flags);
    try {
      await prepare?.(server.namespace);
      await server.up();
      return server;
    } catch (cause) {
      await server.close().catch(() => undefined);
      throw cause;
    }
  }

  /** `sandlot up`, in the background; of a second server where `env` names other data and `listen` another address. */
  async up(options: CliOptions & { listen?: string } = {}): Promise<void> {
    const flags = [
      '--listen',
      options.listen ?? listen,
      '--guest-assets',
      guestAssets,
      '--pool-size',
      '2',
      '--prebuild',
      'none',
      '--kvm',
      this.kvm,
      ...this.flags,
    ];
    await this.mustRun(['up', '--detach', ...flags], { timeoutMs: 120_000, ...options });
  }

  /** The four hex digits in the names of what it makes on the host. */
  get instanceId(): string {
    return (JSON.parse(readFileSync(join(this.data, 'instance.json'), 'utf8')) as { instanceId: string })
      .instanceId;
  }

  /** Starts a CLI command and does not wait. */
  spawn(args: readonly string[], options: CliOptions = {}): ChildProcess {
    return this.#spawn([inCheckout('bin/sandlot'), ...args], options);
  }

  #spawn(command: string[], options: CliOptions): ChildProcess {
    const [program, argv] = this.namespace.command(command);
    return spawn(program, argv, {
      cwd: this.folder,
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: join(this.folder, 'home'),
        SANDLOT_DATA: this.data,
        SANDLOT_URL: this.url,
        ...options.env,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  }

  /** Runs a CLI command to its end. */
  run(args: readonly string[], options: CliOptions = {}): Promise<CliAnswer> {
    return collect(this.spawn(args, options), options, `sandlot ${args.join(' ')}`);
  }

  /** Runs one of Node's programs of the checkout to its end, as this server's user. */
  runProgram(path: string, args: readonly string[], options: CliOptions = {}): Promise<CliAnswer> {
    // Benchmarks speak to the inspectors of our daemons.
    const flags = ['--experimental-websocket', '--no-warnings'];
    const argv = [process.execPath, ...flags, inCheckout(path), ...args];
    return collect(this.#spawn(argv, options), options, path);
  }

  /** Runs a CLI command that must succeed; answers what it printed. */
  async mustRun(args: readonly string[], options: CliOptions = {}): Promise<string> {
    const { code, stdout, stderr } = await this.run(args, options);
    if (code !== 0)
      throw new Error(`sandlot ${args.join(' ')} ended with ${code}: ${stderr}\n${this.logs()}`);
    return stdout;
  }

  /** The last line of what a command printed: the id of a create. */
  async lastLine(args: readonly string[], options: CliOptions = {}): Promise<string> {
    return (await this.mustRun(args, options)).trim().split('\n').at(-1) ?? '';
  }

  /** What a command prints with `--output json`. */
  async json<T>(args: readonly string[], options: CliOptions = {}): Promise<T> {
    return JSON.parse(await this.mustRun([...args, '--output', 'json'], options)) as T;
  }

  /** One request to the API, from inside the namespace. */
  async ask<T>(
    method: string,
    path: string,
    key: string,
    body?: unknown,
  ): Promise<{ status: number; body: T }> {
    const text = body === undefined ? '' : JSON.stringify(body);
    const argv = [
      process.execPath,
      '--input-type=module',
      '-e',
      askProgram,
      `${this.url}/api/v1${path}`,
      method,
      key,
      text,
    ];
    const [program, args] = this.namespace.command(argv);
    const { stdout, stderr } = await collect(
      spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] }),
      {},
      path,
    );
    if (stdout === '') throw new Error(`${method} ${path}: no answer: ${stderr}`);
    const answer = JSON.parse(stdout) as { status: number; text: string };
    return { status: answer.status, body: JSON.parse(answer.text) as T };
  }

  /** Newest lines of the daemons' logs. */
  logs(lines = 25): string {
    const folder = join(this.data, 'logs');
    if (!existsSync(folder)) return '';
    return readdirSync(folder)
      .map(
        (name) =>
          `-- ${name}\n${readFileSync(join(folder, name), 'utf8').trimEnd().split('\n').slice(-lines).join('\n')}`,
      )
      .join('\n');
  }

  /** `sandlot down`; throws when anything is left on the host. */
  async close(): Promise<void> {
    const left: string[] = [];
    try {
      if (existsSync(join(this.data, 'instance.json'))) {
        await this.mustRun(['down'], { timeoutMs: 120_000 });
        left.push(...leftoversOf(this.instanceId, this.folder), ...this.namespace.contents());
      }
    } finally {
      if (left.length > 0) process.stderr.write(`${this.logs()}\n`);
      for (const text of left) {
        const pid = /^process (\d+)/.exec(text)?.[1];
        if (pid) process.kill(Number(pid), 'SIGKILL');
      }
      this.namespace.close();
      rmSync(this.folder, { recursive: true, force: true });
    }
    if (left.length > 0) throw new Error(`left behind by the server:\n${left.join('\n')}`);
  }
}

function collect(child: ChildProcess, options: CliOptions, what: string): Promise<CliAnswer> {
  return new Promise((resolve, reject) => {
    const answer = { stdout: '', stderr: '' };
    const timer = setTimeout(() => child.kill('SIGKILL'), (options.timeoutMs ?? 60_000) * testSlowness);
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (answer.stdout += text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (answer.stderr += text));
    child.once('error', reject);
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      if (signal) reject(new Error(`${what}: ended by ${signal}: ${answer.stderr}`));
      else resolve({ code: code ?? -1, ...answer });
    });
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(options.stdin ?? '');
  });
}
