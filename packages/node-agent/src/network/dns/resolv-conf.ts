/**
 * Where the DNS proxy sends its questions: given addresses, or those of the host's resolv.conf, read again
 * when the file changes (a laptop moves between networks). Owned by `dns-proxy-main.ts`.
 */
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';

/** One upstream server. */
export interface Upstream {
  address: string;
  port: number;
}

/** How long a look at the file holds. */
const recheckMs = 2_000;

/** The list of upstream servers. */
export class Upstreams {
  private checkedAt = Number.NEGATIVE_INFINITY;
  private version = '';
  private fromFile: Upstream[] = [];

  constructor(
    private readonly fixed: Upstream[] | undefined,
    private readonly path = '/etc/resolv.conf',
  ) {}

  /** In order of preference; never empty. */
  async list(): Promise<Upstream[]> {
    if (this.fixed) return this.fixed;
    if (Date.now() - this.checkedAt > recheckMs) {
      this.checkedAt = Date.now();
      await this.read();
    }
    return this.fromFile;
  }

  private async read(): Promise<void> {
    try {
      const { mtimeMs, size, ino } = await stat(this.path);
      const version = `${mtimeMs} ${size} ${ino}`;
      if (version === this.version) return;
      this.fromFile = parseResolvConf(await readFile(this.path, 'utf8'));
      this.version = version;
    } catch {
      // Missing for the moment that a network manager replaces it: what was read before still holds.
      if (this.fromFile.length === 0) this.fromFile = parseResolvConf('');
    }
  }
}

/** The `nameserver` lines, at most three as the C library takes, which also falls back to this host. */
export function parseResolvConf(text: string): Upstream[] {
  const found: Upstream[] = [];
  for (const line of text.split('\n')) {
    const address = /^\s*nameserver\s+([^\s#;]+)/.exec(line)?.[1];
    if (address && isIP(address.split('%')[0]!) !== 0) found.push({ address, port: 53 });
  }
  return found.length > 0 ? found.slice(0, 3) : [{ address: '127.0.0.1', port: 53 }];
}

/** `ADDRESS` or `IPV4:PORT`. Throws for anything else. */
export function parseUpstream(text: string): Upstream {
  if (isIP(text) !== 0) return { address: text, port: 53 };
  const match = /^(.+):(\d{1,5})$/.exec(text);
  if (match && isIP(match[1]!) === 4 && Number(match[2]) <= 65535)
    return { address: match[1]!, port: Number(match[2]) };
  throw new Error(`'${text}' is not the address of a DNS server (ADDRESS or IPV4:PORT)`);
}
