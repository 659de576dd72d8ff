/**
 * A network namespace that plays the host of a test server, so that the machine's own network is not
 * touched and two servers do not meet. Used by `TestNode` and `TestServer`.
 */
import { execFileSync } from 'node:child_process';

/** One namespace with its loopback up. */
export class HostNamespace {
  private constructor(readonly name: string) {}

  /** Makes it. */
  static open(name: string): HostNamespace {
    execFileSync('ip', ['netns', 'add', name]);
    execFileSync('ip', ['-n', name, 'link', 'set', 'lo', 'up']);
    return new HostNamespace(name);
  }

  /** Argument vector that runs `argv` in it. nsenter and not `ip netns exec`: that makes a mount namespace too. */
  command(argv: string[]): [string, string[]] {
    return ['nsenter', [`--net=/run/netns/${this.name}`, '--', ...argv]];
  }

  /** Runs a short program in it and answers what it printed. */
  run(argv: string[]): string {
    const [program, args] = this.command(argv);
    return execFileSync(program, args, { encoding: 'utf8', timeout: 20_000 });
  }

  /** Links and nft tables in it beyond the loopback: what a server has made there. */
  contents(): string[] {
    const links = this.run(['ip', '-o', 'link'])
      .split('\n')
      .map((line) => line.split(': ')[1])
      .filter((name): name is string => name !== undefined && name !== 'lo')
      .map((name) => `link ${name}`);
    const tables = this.run(['nft', 'list', 'tables'])
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => `nft ${line}`);
    return [...links, ...tables];
  }

  /** Removes it. */
  close(): void {
    execFileSync('ip', ['netns', 'delete', this.name]);
  }
}
