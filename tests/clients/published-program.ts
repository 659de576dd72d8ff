/**
 * A user's shell for a published client: its programs run in the network of a test server, with a HOME of
 * their own and the server's address and key in the environment, as `docs/from-prime.md` tells users to set
 * them. Used by the tests of this folder.
 */
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { CliAnswer, TestServer } from '../driver/test-server.js';

/** How a program is called. */
export interface ProgramOptions {
  stdin?: string;
  /** Added to the shell's; undefined takes one away. */
  env?: Record<string, string | undefined>;
  cwd?: string;
  timeoutMs?: number;
}

/** Longest that one program may take, beside machines in software emulation on a busy host. */
const programMs = 300_000;

/** See the file's head. */
export class ClientShell {
  readonly home: string;

  /**
   * @param bin `bin` folder of the client's virtual environment
   * @param key of the user
   * @param name of its folder: clients keep tokens and settings in HOME
   */
  constructor(
    private readonly server: TestServer,
    private readonly bin: string,
    private readonly key: string,
    name: string,
  ) {
    this.home = join(server.folder, name);
    mkdirSync(this.home);
  }

  /** Runs a program of the environment to its end. */
  run(program: string, args: readonly string[], options: ProgramOptions = {}): Promise<CliAnswer> {
    const [command, argv] = this.server.namespace.command([join(this.bin, program), ...args]);
    const child = spawn(command, argv, {
      cwd: options.cwd ?? this.home,
      env: {
        PATH: `${this.bin}:/usr/local/bin:/usr/bin:/bin`,
        HOME: this.home,
        LANG: 'C.UTF-8',
        // Tables are as wide as that: no cell is cut.
        COLUMNS: '240',
        NO_COLOR: '1',
        PRIME_API_KEY: this.key,
        PRIME_API_BASE_URL: this.server.url,
        PRIME_DISABLE_VERSION_CHECK: '1',
        ...options.env,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    return new Promise((resolve, reject) => {
      const answer = { stdout: '', stderr: '' };
      const timer = setTimeout(() => child.kill('SIGKILL'), options.timeoutMs ?? programMs);
      child.stdout.setEncoding('utf8').on('data', (text: string) => (answer.stdout += text));
      child.stderr.setEncoding('utf8').on('data', (text: string) => (answer.stderr += text));
      child.once('error', reject);
      child.once('close', (code, signal) => {
        clearTimeout(timer);
        if (code === null)
          reject(new Error(`${program} ${args.join(' ')}: ended by ${signal}\n${tail(answer)}`));
        else resolve({ code, ...answer });
      });
      child.stdin.on('error', () => undefined);
      child.stdin.end(options.stdin ?? '');
    });
  }

  /** Runs a program that must succeed; answers what it printed. */
  async mustRun(program: string, args: readonly string[], options: ProgramOptions = {}): Promise<string> {
    const answer = await this.run(program, args, options);
    if (answer.code !== 0)
      throw new Error(
        `${program} ${args.join(' ')} ended with ${answer.code}:\n${tail(answer)}\n${this.server.logs()}`,
      );
    return answer.stdout;
  }
}

function tail({ stdout, stderr }: { stdout: string; stderr: string }): string {
  return `${stdout.slice(-4_000)}\n${stderr.slice(-4_000)}`;
}
