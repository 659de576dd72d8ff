/**
 * One sandbox's network: its namespace, and the policy in force in it. Made and owned by `../tap-networks.ts`;
 * all changes of one namespace go through one queue here.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { type EgressPolicy, parseIpv4 } from '@sandlot/protocol';
import type { MachineNetwork, RunAs } from '@sandlot/vmm';
import { NetworkError, type NetworkHandle, type SandboxNetwork } from '../contract.js';
import type { ResolvedAddress, SourcePolicy } from '../dns/dns-messages.js';
import {
  type Admission,
  type EgressPlan,
  type EgressSurroundings,
  planEgress,
  setsForName,
  writeAdmissions,
  writeEgress,
} from '../policy/egress-plan.js';
import { matchesName, normalizeName, parseEgressPolicy } from '../policy/egress-policy.js';
import { mayBeAdmitted } from '../policy/ranges.js';
import { AdmittedNames } from './admitted-names.js';
import type { FoundEgress } from './found-egress.js';
import type { NetworkNames } from './layout.js';
import { tapName } from './namespace-rules.js';

/** What a network needs from its owner. */
export interface TapNetworkParts {
  surroundings: EgressSurroundings;
  nft(index: number, transaction: string): Promise<void>;
  setDnsPolicy(source: string, policy: SourcePolicy): void;
  /** Where the policy of a network is kept, for the time after our restart. */
  policyFile(index: number): string;
  /** Removes the namespace and forgets the network. */
  release(network: TapNetwork): Promise<void>;
}

/** See {@link SandboxNetwork}. */
export class TapNetwork implements SandboxNetwork {
  readonly handle: NetworkHandle;
  readonly machine: MachineNetwork;
  readonly runAs: RunAs;
  readonly nodeAddress: string;
  private plan: EgressPlan | undefined;
  /** Sets of names in the namespace. */
  private setNames: string[];
  private digest: string;
  private readonly admitted: AdmittedNames;
  private queue: Promise<unknown> = Promise.resolve();
  private released: Promise<void> | undefined;

  constructor(
    readonly names: NetworkNames,
    private readonly parts: TapNetworkParts,
    found: FoundEgress,
  ) {
    this.handle = { kind: 'tap', index: names.index };
    this.machine = { kind: 'tap', netnsPath: names.netnsPath, tapName };
    this.runAs = { uid: names.uid, gid: names.uid };
    this.nodeAddress = names.address;
    this.setNames = found.setNames;
    this.digest = found.digest;
    this.admitted = new AdmittedNames(found.admissions);
  }

  async applyPolicy(policy: EgressPolicy): Promise<void> {
    const plan = planEgress(parseEgressPolicy(policy), this.parts.surroundings);
    await this.enqueue(async () => {
      // After a restart the same policy is in force already, with the addresses that its names had.
      if (plan.digest !== this.digest) {
        const kept = this.admitted
          .list()
          .flatMap(({ name, address, timeout }) =>
            setsForName(plan, name).map((setName) => ({ setName, address, timeout, name })),
          )
          .filter(({ address }) => mayBeAdmitted(parseIpv4(address)!, plan.reach));
        // First the file: a crash in between puts the wanted policy in force at the next start.
        await writeWhole(this.parts.policyFile(this.names.index), JSON.stringify(policy));
        await this.parts.nft(this.names.index, writeEgress(plan, this.setNames, dedupe(kept)));
        this.digest = plan.digest;
        this.setNames = plan.nameSets.map((set) => set.setName);
        this.admitted.retain((name) => plan.names.names.some((entry) => matchesName(name, entry)));
      }
      this.plan = plan;
      this.parts.setDnsPolicy(this.nodeAddress, { names: plan.names, reach: plan.reach });
    });
  }

  /**
   * After our restart: puts the policy in force again that this network had. The rules outlived us, so mostly only
   * the DNS proxy has to learn it. Nothing is reachable if no policy was ever applied.
   */
  async restorePolicy(): Promise<void> {
    const text = await readFile(this.parts.policyFile(this.names.index), 'utf8').catch(() => undefined);
    if (text !== undefined) await this.applyPolicy(JSON.parse(text) as EgressPolicy);
  }

  /**
   * Lets addresses of a name through; asked by the DNS proxy, which is not trusted: name and addresses are
   * checked against the policy again. Resolves when they are in force.
   */
  async admit(asked: string, addresses: readonly ResolvedAddress[]): Promise<boolean> {
    const name = normalizeName(asked);
    return this.enqueue(async () => {
      const plan = this.plan;
      const setNames = plan ? setsForName(plan, name) : [];
      if (!plan || setNames.length === 0) return false;
      const wanted = addresses.filter(({ address }) => {
        const value = parseIpv4(address);
        return value !== undefined && mayBeAdmitted(value, plan.reach);
      });
      if (wanted.length < addresses.length) return false;
      const fresh = this.admitted.select(name, wanted);
      if (fresh.length === 0) return true;
      const admissions = fresh.flatMap(({ address, timeout }) =>
        setNames.map((setName) => ({ setName, address, timeout, name })),
      );
      await this.parts.nft(this.names.index, writeAdmissions(dedupe(admissions)));
      this.admitted.note(name, fresh);
      return true;
    });
  }

  async takeNamesOf(other: SandboxNetwork): Promise<void> {
    if (!(other instanceof TapNetwork)) return;
    await this.enqueue(async () => {
      const { plan } = this;
      if (!plan) return;
      const known = other.admitted.list().filter(({ name, address }) => {
        const value = parseIpv4(address);
        return setsForName(plan, name).length > 0 && value !== undefined && mayBeAdmitted(value, plan.reach);
      });
      if (known.length === 0) return;
      const admissions = known.flatMap(({ name, address, timeout }) =>
        setsForName(plan, name).map((setName) => ({ setName, address, timeout, name })),
      );
      await this.parts.nft(this.names.index, writeAdmissions(dedupe(admissions)));
      for (const { name, address, timeout } of known) this.admitted.note(name, [{ address, timeout }]);
    });
  }

  release(): Promise<void> {
    this.released ??= this.parts.release(this).catch((cause) => {
      // The next call tries again.
      this.released = undefined;
      throw cause;
    });
    return this.released;
  }

  private enqueue<T>(action: () => Promise<T>): Promise<T> {
    const guarded = async (): Promise<T> => {
      if (this.released)
        throw new NetworkError('setup-failed', `network ${this.names.namespace} is released`);
      return action();
    };
    const result = this.queue.then(guarded, guarded);
    this.queue = result.catch(() => undefined);
    return result;
  }
}

/** Never half of it after a crash of ours. A power loss takes the namespaces too, so nothing waits for the disk. */
async function writeWhole(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text, { mode: 0o600 });
  await rename(`${path}.new`, path);
}

/** One element a set and address; the longest time wins. */
function dedupe(admissions: readonly Admission[]): Admission[] {
  const byKey = new Map<string, Admission>();
  for (const one of admissions) {
    const key = `${one.setName} ${one.address}`;
    if ((byKey.get(key)?.timeout ?? 0) < one.timeout) byKey.set(key, one);
  }
  return [...byKey.values()];
}
