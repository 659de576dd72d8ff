/**
 * Makes, finds and removes sandbox namespaces: the only code that runs `ip netns`. A namespace is deleted
 * after use and never cleaned for another (its connection table, sets and neighbours belong to one guest).
 * If we die half way, the name or the link is left, and `list` finds it.
 */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { NetworkError } from '../contract.js';
import { type InstanceLayout, indexInName, type NetworkNames, netnsFolder } from './layout.js';
import {
  type NamespaceRuleOptions,
  namespaceSettings,
  writeHostLinks,
  writeNamespaceRules,
  writeTap,
  writeUp,
} from './namespace-rules.js';
import { runTool } from './run-tool.js';

const goneDeadlineMs = 500;

/** Namespaces of one instance. */
export class Namespaces {
  constructor(
    private readonly layout: InstanceLayout,
    private readonly rules: NamespaceRuleOptions,
    /** Folder for the short-lived input of the tools. */
    private readonly scratchFolder: string,
  ) {}

  /**
   * Makes one: links, then rules, then up, so that no packet ever meets a namespace without rules. One
   * `ip -batch` does all of it (15 ms; one process each way would be 20). What a failure leaves is removed.
   */
  async make(index: number): Promise<NetworkNames> {
    const names = this.layout.at(index);
    const { serviceAddress } = this.rules;
    const folder = join(this.scratchFolder, names.namespace);
    const [tap, rules, up] = [join(folder, 'tap'), join(folder, 'rules'), join(folder, 'up')];
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await Promise.all([
        writeFile(tap, joinLines(writeTap(names, serviceAddress))),
        writeFile(rules, writeNamespaceRules(names, this.rules)),
        writeFile(up, joinLines(writeUp(serviceAddress))),
      ]);
      const inside = `netns exec ${names.namespace}`;
      const batch = [
        ...writeHostLinks(names, serviceAddress),
        `${inside} ip -batch ${tap}`,
        `${inside} nft -f ${rules}`,
        `${inside} sysctl -q -w ${namespaceSettings.join(' ')}`,
        `${inside} ip -batch ${up}`,
        `link set ${names.link} up`,
      ];
      await runTool(['ip', '-batch', '-'], { input: joinLines(batch) });
      return names;
    } catch (cause) {
      await this.remove([index]).catch(() => undefined);
      throw new NetworkError(
        'setup-failed',
        `cannot make the network namespace ${names.namespace}: ${messageOf(cause)}`,
        { cause },
      );
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /**
   * Removes these, whatever is left of them. With a namespace its links and rules go by themselves, a moment
   * later. A process that keeps one alive (it should be gone by now) is cut off by the removal of the link.
   */
  async remove(indices: readonly number[]): Promise<void> {
    if (indices.length === 0) return;
    // 5.5 ms for each was measured; a host under load is slower.
    const timeoutMs = 10_000 + indices.length * 100;
    const runBatch = (lines: string[]): Promise<string> =>
      runTool(['ip', '-force', '-batch', '-'], { input: joinLines(lines), mayFail: true, timeoutMs });
    await runBatch(indices.map((index) => `netns del ${this.layout.at(index).namespace}`));
    let left = await this.waitUntilGone(indices);
    if (left.length > 0) {
      await runBatch(left.map((index) => `link del ${this.layout.at(index).link}`));
      left = await this.waitUntilGone(left);
    }
    if (left.length > 0) {
      const names = left.map((index) => this.layout.at(index).namespace).join(', ');
      throw new NetworkError('setup-failed', `network namespaces could not be removed: ${names}`);
    }
  }

  /** Indices of everything that exists of this instance: names of namespaces, and links without one. */
  async list(): Promise<number[]> {
    const { namespacePrefix, linkPrefix } = this.layout;
    const [names, links] = await Promise.all([readNamespaceNames(), readLinkNames()]);
    const found = [
      ...names.map((name) => indexInName(name, namespacePrefix)),
      ...links.map((name) => indexInName(name, linkPrefix)),
    ];
    return [...new Set(found.filter((index) => index !== undefined))].sort((a, b) => a - b);
  }

  /** Gives those that are still there after the time that the kernel needs. */
  private async waitUntilGone(indices: readonly number[]): Promise<number[]> {
    const wanted = new Set(indices);
    // 36 ms after one, and the kernel takes many at a time.
    const deadline = Date.now() + goneDeadlineMs + indices.length * 10;
    for (;;) {
      const left = (await this.list()).filter((index) => wanted.has(index));
      if (left.length === 0 || Date.now() > deadline) return left;
      await sleep(10);
    }
  }

  /** Runs `nft` in one of them. */
  async nft(index: number, transaction: string): Promise<void> {
    const { netnsPath } = this.layout.at(index);
    await runTool(['nsenter', `--net=${netnsPath}`, 'nft', '-f', '-'], { input: transaction });
  }

  /** The tables of one of them as nft prints them in JSON, or undefined if there is no such namespace or no rules in it. */
  async readTable(index: number): Promise<unknown> {
    const { netnsPath } = this.layout.at(index);
    const argv = ['nsenter', `--net=${netnsPath}`, 'nft', '-j', 'list', 'table', 'inet', 'sl'] as const;
    const out = await runTool(argv, { mayFail: true });
    return out.trim() === '' ? undefined : JSON.parse(out);
  }
}

/** Names of the links of the network namespace that we are in. */
async function readLinkNames(): Promise<string[]> {
  const text = await readFile('/proc/self/net/dev', 'utf8');
  return [...text.matchAll(/^\s*([^\s:]+):/gm)].map((match) => match[1]!);
}

/** All names that `ip netns` knows. */
export async function readNamespaceNames(): Promise<string[]> {
  try {
    return await readdir(netnsFolder);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw cause;
  }
}

function joinLines(lines: readonly string[]): string {
  return `${lines.join('\n')}\n`;
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
