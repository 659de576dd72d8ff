/**
 * Finds the /20 of an instance and holds it: the one remembered in its state folder, else the first of
 * 10.77.0.0/16 that neither the host nor another instance uses. Called by `../tap-networks.ts` at start and end.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Cidr, formatCidr, overlaps, parseCidr } from '@sandlot/protocol';
import { NetworkError } from '../contract.js';
import { parseSubnet, slotCount, subnetOfSlot } from './layout.js';
import { readNamespaceNames } from './namespaces.js';
import { isAlive, markSelf, type ProcessMark, withLock } from './run-folder.js';
import { runTool } from './run-tool.js';

/** What is needed to claim a subnet. */
export interface ClaimRequest {
  instanceId: string;
  stateFolder: string;
  runFolder: string;
  /** The operator's own choice. */
  subnet?: string;
}

interface Claim {
  instanceId: string;
  owner: ProcessMark;
}

/** Claims a subnet and remembers it. Throws {@link NetworkError}: `exhausted` if none is free. */
export async function claimSubnet(request: ClaimRequest): Promise<Cidr> {
  const { instanceId, stateFolder, runFolder } = request;
  const remembered = await readRemembered(stateFolder);
  const live = await hasNamespaces(instanceId);
  const wanted = request.subnet === undefined ? undefined : parseSubnet(request.subnet);
  if (wanted && remembered && live && formatCidr(wanted) !== formatCidr(remembered)) {
    throw new NetworkError(
      'setup-failed',
      `sandboxes of subnet ${formatCidr(remembered)} still run; end them before changing it to ${formatCidr(wanted)}`,
    );
  }
  return withLock(join(runFolder, 'subnets.lock'), async () => {
    const fixed = wanted ?? (live ? remembered : undefined);
    const candidates = fixed ? [fixed] : [...(remembered ? [remembered] : []), ...allSubnets()];
    const inUse = fixed ? [] : await readRangesInUse();
    const own = remembered;
    for (const candidate of candidates) {
      // Our own addresses from before a crash make the remembered one look taken.
      const isOwn =
        own !== undefined &&
        formatCidr(own) === formatCidr(candidate) &&
        (await readClaim(runFolder, candidate))?.instanceId === instanceId;
      if (!isOwn && inUse.some((range) => overlaps(range, candidate))) continue;
      if (await isClaimedByAnother(runFolder, candidate, instanceId)) {
        if (!fixed) continue;
        throw new NetworkError(
          'setup-failed',
          `subnet ${formatCidr(candidate)} belongs to another instance on this host; choose another one`,
        );
      }
      await writeClaim(runFolder, candidate, { instanceId, owner: await markSelf() });
      await mkdir(stateFolder, { recursive: true });
      await writeFile(join(stateFolder, 'network.json'), JSON.stringify({ subnet: formatCidr(candidate) }));
      return candidate;
    }
    throw new NetworkError(
      'exhausted',
      'every /20 of 10.77.0.0/16 is in use on this host; give another range with the subnet option',
    );
  });
}

/** Gives the subnet back to other instances. Idempotent. */
export async function releaseSubnet(runFolder: string, subnet: Cidr, instanceId: string): Promise<void> {
  await withLock(join(runFolder, 'subnets.lock'), async () => {
    if ((await readClaim(runFolder, subnet))?.instanceId === instanceId)
      await rm(claimPath(runFolder, subnet), { force: true });
  });
}

async function isClaimedByAnother(runFolder: string, subnet: Cidr, instanceId: string): Promise<boolean> {
  const claim = await readClaim(runFolder, subnet);
  if (!claim || claim.instanceId === instanceId) return false;
  // An instance that is down may still have sandboxes, which keep its addresses and uids.
  return (await isAlive(claim.owner)) || (await hasNamespaces(claim.instanceId));
}

async function hasNamespaces(instanceId: string): Promise<boolean> {
  return (await readNamespaceNames()).some((name) => name.startsWith(`sl${instanceId}-`));
}

/** Ranges of the host's addresses and of its routes, default routes left out. */
async function readRangesInUse(): Promise<Cidr[]> {
  const [addresses, routes] = await Promise.all([
    runTool(['ip', '-4', '-j', 'addr', 'show']),
    runTool(['ip', '-4', '-j', 'route', 'show', 'table', 'all']),
  ]);
  const found: (Cidr | undefined)[] = [];
  for (const link of JSON.parse(addresses || '[]') as {
    addr_info?: { local?: string; prefixlen?: number }[];
  }[]) {
    for (const { local, prefixlen } of link.addr_info ?? []) found.push(parseCidr(`${local}/${prefixlen}`));
  }
  for (const { dst } of JSON.parse(routes || '[]') as { dst?: string }[]) found.push(parseCidr(dst ?? ''));
  // A route as wide as 10/8 (a company's network) does not take our corner of it; one inside the range does.
  return found.filter((range) => range !== undefined).filter((range) => range.bits >= 16);
}

function allSubnets(): Cidr[] {
  return Array.from({ length: slotCount }, (_, slot) => subnetOfSlot(slot));
}

async function readRemembered(stateFolder: string): Promise<Cidr | undefined> {
  const record = (await readJson(join(stateFolder, 'network.json'))) as { subnet?: string } | undefined;
  return record?.subnet === undefined ? undefined : parseCidr(record.subnet);
}

async function readClaim(runFolder: string, subnet: Cidr): Promise<Claim | undefined> {
  return (await readJson(claimPath(runFolder, subnet))) as Claim | undefined;
}

async function writeClaim(runFolder: string, subnet: Cidr, claim: Claim): Promise<void> {
  await mkdir(join(runFolder, 'subnets'), { recursive: true });
  await writeFile(claimPath(runFolder, subnet), JSON.stringify(claim));
}

function claimPath(runFolder: string, subnet: Cidr): string {
  return join(runFolder, 'subnets', `${formatCidr(subnet).replace('/', '-')}.json`);
}

/** A file that is missing or cut off (power loss) counts as none. */
async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch (cause) {
    if (cause instanceof SyntaxError || (cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw cause;
  }
}
