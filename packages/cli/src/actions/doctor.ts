/** `sandlot doctor`: what this host can and cannot do, and why. Changes nothing. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { exitCodes } from '../cli-error.js';
import type { CliContext } from '../context.js';
import type { Check, Finding } from '../doctor/check.js';
import { realHost } from '../doctor/host.js';
import { clock, disk, kvm, memory, port, rights } from '../doctor/host-checks.js';
import {
  e2fsprogs,
  forwarding,
  guestAssets,
  networkPrograms,
  qemu,
  route,
  tun,
} from '../doctor/program-checks.js';
import type { OutputOptions } from '../grammar/binder.js';
import { readInstance } from '../up/instance.js';
import { layoutOf } from '../up/layout.js';
import { defaultListen, localUrlOf } from '../up/options.js';
import { buildRoot } from '../up/reachable-build.js';

const checks: readonly Check[] = [
  rights,
  kvm,
  qemu,
  e2fsprogs,
  networkPrograms,
  guestAssets,
  tun,
  route,
  forwarding,
  memory,
  disk,
  port,
  clock,
];

/** The action: exit code 1 when something is missing without which nothing starts. */
export async function run(
  context: CliContext,
  _args: [],
  options: OutputOptions & { data?: string; guestAssets?: string },
): Promise<number> {
  const dataFolder = options.data ?? context.settings().data.value;
  const kept = readInstance(layoutOf(dataFolder).instanceFile)?.options;
  const { hostname, port: portText } = new URL(localUrlOf(kept?.listen ?? defaultListen));
  const ofCheckout = path.join(buildRoot, '.cache', 'guest');
  const host = realHost({
    isRoot: context.isRoot,
    dataFolder,
    guestAssets:
      options.guestAssets ??
      kept?.guestAssets ??
      (existsSync(ofCheckout) ? ofCheckout : path.join(dataFolder, 'guest')),
    listen: { host: hostname, port: Number(portText) },
    serverStatus: await serverStatus(context),
  });
  const findings: Finding[] = [];
  for (const check of checks) findings.push(await check(host));
  if (options.output === 'json') context.out.json(findings);
  else {
    const width = Math.max(...findings.map(({ name }) => name.length));
    for (const { name, result, seen, advice } of findings) {
      context.out.line(`${result.padEnd(4)}  ${name.padEnd(width)}  ${seen}`);
      if (advice) context.out.line(`      ${' '.repeat(width)}  -> ${advice}`);
    }
  }
  return findings.some(({ result }) => result === 'fail') ? exitCodes.failed : 0;
}

async function serverStatus(context: CliContext) {
  const { Sandlot } = await import('@sandlot/sdk');
  const { url, apiKey } = context.settings();
  const client = new Sandlot({
    url: url.value,
    apiKey: apiKey?.value ?? '',
    maxRetries: 0,
    timeoutMs: 3_000,
  });
  try {
    return await client.server.status();
  } catch {
    // It does not run, or not with this key: the checks look for themselves then.
    return undefined;
  } finally {
    client.close();
  }
}
