/** `GET` and `PUT /sandbox/{id}/egress-policy`: a new policy raises the generation and is in force once the node says so. */
import type { EgressStatus, EgressUpdate, SchemaIssue } from '@sandlot/protocol';
import type { Actor } from '../domain/access.js';
import type { SandboxRecord } from '../domain/record.js';
import { isEnded } from '../domain/states.js';
import { AppError, invalidRequest, sandboxNotFound } from './app-error.js';
import { atMost } from './bounded.js';
import { buildPolicy } from './build-policy.js';
import type { AppContext, Caller } from './context.js';
import { requireSandbox } from './read-sandbox.js';

/** How long a PUT waits for the node; clients then poll until `applied`. */
const waitMs = 5_000;

/** The policy and whether it is in force. */
export async function getEgressPolicy(app: AppContext, actor: Actor, id: string): Promise<EgressStatus> {
  return toStatus(await requireSandbox(app, actor, id));
}

/** Replaces the policy. */
export async function putEgressPolicy(
  app: AppContext,
  { actor, requestId }: Caller,
  id: string,
  body: EgressUpdate,
): Promise<EgressStatus> {
  await requireSandbox(app, actor, id);
  const issues: SchemaIssue[] = [];
  const names = { allow: 'allowlist', deny: 'denylist' };
  const policy = buildPolicy(readLists(body), 0, names, issues);
  if (issues.length > 0) throw invalidRequest(issues);
  const change = await app.store.change(id, (record) => {
    if (isEnded(record.state) || record.state === 'stopping')
      throw new AppError('CONFLICT', `Sandbox ${id} has ended, so its network policy cannot change.`);
    const generation = record.egress.generation + 1;
    return { ...record, egress: { ...policy, generation }, updatedAt: app.now() };
  });
  if (change === undefined) throw sandboxNotFound(id);
  await atMost(app.lifecycle.pushEgress(id, requestId), waitMs);
  return toStatus(await requireSandbox(app, actor, id));
}

/** The wire's "allow all" is an empty denylist, its "deny all" an empty allowlist; two empty values mean allow all. */
function readLists(body: EgressUpdate): { allowlist: string[] | null; denylist: string[] | null } {
  const allowlist = body.allowlist ?? null;
  const denylist = body.denylist ?? null;
  return allowlist === null && denylist === null
    ? { allowlist: null, denylist: [] }
    : { allowlist, denylist };
}

function toStatus({ egress, egressApplied }: SandboxRecord): EgressStatus {
  return {
    policy: { allowlist: egress.allowlist, denylist: egress.denylist },
    generation: egress.generation,
    applied_generation: egressApplied,
    applied: egressApplied >= egress.generation,
  };
}
