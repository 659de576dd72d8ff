/** `client.sandboxes`: create, find, wait for and delete sandboxes. */

import { randomUUID } from 'node:crypto';
import type { ErrorContext, ForkedSandboxes, GatewayAuth } from '@sandlot/protocol';
import { NotFoundError, SandboxNotRunningError, type SandlotError, ValidationError } from '../errors.js';
import type { CallOptions } from '../http/api-client.js';
import { pause } from '../http/retry.js';
import { Sandbox } from '../sandbox.js';
import type { SandboxContext } from '../sandbox-context.js';
import { createBody } from './create-body.js';
import type { WaitOptions } from './sandbox-records.js';
import {
  type CreateSandbox,
  type DeleteResult,
  endedStatuses,
  type ForkOptions,
  type ForkResult,
  type ListSandboxes,
  type RollbackOptions,
  type SandboxInfo,
  type SandboxState,
} from './sandbox-types.js';

/** A whole id, as `idPattern` of the protocol has it (that module loads a schema compiler). */
export const fullIdPattern = /^[a-z][a-z2-7]{19}$/;
const idBeginningPattern = /^[A-Za-z0-9_-]{1,64}$/;
/** Ids in one `status:batchGet`. */
const statusBatchSize = 100;
/** Ids in one bulk delete. */
const deleteBatchSize = 500;

/** Memory goes to a disk, or comes from one. */
const restTimeoutMs = 340_000;

/** Shortest time between two questions of {@link Sandboxes.waitUntilRunning}. */
const minimumPollMs = 100;

/** Calls about sandboxes. */
export class Sandboxes {
  constructor(private readonly context: SandboxContext) {}

  /** Creates a sandbox; does not wait until it runs. Repeats after failures make no second one. */
  async create(create: CreateSandbox, options: CallOptions = {}): Promise<Sandbox> {
    const info = await this.context.api.call<SandboxInfo & { gatewayAuth?: GatewayAuth }>({
      method: 'POST',
      path: '/sandbox',
      // Made once: every repeat carries the same idempotency key.
      body: createBody(create),
      idempotent: true,
      ...options,
    });
    const { gatewayAuth, ...rest } = info;
    if (gatewayAuth) this.context.access.put(info.id, gatewayAuth);
    return new Sandbox(this.context, rest as SandboxInfo);
  }

  /** One sandbox by its full id. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    return new Sandbox(this.context, await this.info(id, options));
  }

  /** A handle without asking the server: for an id that is known to be right. */
  handle(id: string): Sandbox {
    return new Sandbox(this.context, undefined, id);
  }

  /** What the server knows of one sandbox. */
  info(id: string, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.context.api.call<SandboxInfo>({
      method: 'GET',
      path: `/sandbox/${encodeURIComponent(id)}`,
      ...options,
    });
  }

  /** All that match, newest first, page by page as they are read. */
  async *list(filter: ListSandboxes = {}, options: CallOptions = {}): AsyncGenerator<SandboxInfo> {
    for (let page = 1; ; page++) {
      const answer = await this.context.api.call<{
        sandboxes: SandboxInfo[];
        has_next?: boolean;
        hasNext?: boolean;
      }>({
        method: 'GET',
        path: '/sandbox',
        query: {
          page,
          per_page: filter.pageSize ?? 200,
          team_id: filter.teamId,
          user_id: filter.userId,
          status: filter.status,
          labels: filter.labels,
          is_active: filter.activeOnly ? true : undefined,
          id_prefix: filter.idPrefix,
        },
        ...options,
      });
      yield* answer.sandboxes;
      if (!(answer.has_next ?? answer.hasNext) || answer.sandboxes.length === 0) return;
    }
  }

  /** Deletes one; resolves when the server has taken note. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.context.api.call({ method: 'DELETE', path: `/sandbox/${encodeURIComponent(id)}`, ...options });
    this.context.access.drop(id);
  }

  /** Saves a running sandbox and frees its memory; resolves when it is paused. Its next use lets it go on. */
  pause(id: string, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#act(id, 'pause', options);
  }

  /** Lets a paused sandbox go on; resolves when it runs. */
  resume(id: string, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#act(id, 'resume', options);
  }

  /**
   * Copies of a running sandbox, processes and all, each somebody else and ready to exec; it goes on. All or none,
   * unless `allowPartial` is set: then `errors` says what of the others became.
   */
  async fork(id: string, fork: ForkOptions = {}, options: CallOptions = {}): Promise<ForkResult<Sandbox>> {
    const { sandboxes, errors } = await this.forkInfos(id, fork, options);
    return { sandboxes: sandboxes.map((info) => new Sandbox(this.context, info)), errors };
  }

  /** The same, as records. */
  forkInfos(id: string, fork: ForkOptions, options: CallOptions = {}): Promise<ForkResult<SandboxInfo>> {
    const body = {
      count: fork.count,
      name: fork.name,
      labels: fork.labels,
      environment_vars: fork.env,
      timeout_minutes: fork.timeoutMinutes,
      allow_partial: fork.allowPartial,
      // Made once: every repeat carries the same.
      idempotency_key: fork.idempotencyKey ?? randomUUID().replaceAll('-', ''),
    };
    return this.context.api.call<ForkedSandboxes>({
      method: 'POST',
      path: `/sandbox/${encodeURIComponent(id)}/fork`,
      body: Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined)),
      idempotent: true,
      timeoutMs: restTimeoutMs,
      ...options,
    });
  }

  /** Puts a sandbox back to a checkpoint of it; resolves when it runs. What it did since is gone. */
  rollback(
    id: string,
    checkpointId: string,
    { memory }: RollbackOptions = {},
    options: CallOptions = {},
  ): Promise<SandboxInfo> {
    return this.context.api.call<SandboxInfo>({
      method: 'POST',
      path: `/sandbox/${encodeURIComponent(id)}/rollback`,
      body: { checkpoint_id: checkpointId, ...(memory === undefined ? {} : { restore_memory: memory }) },
      // Done twice it ends in the same place.
      idempotent: true,
      timeoutMs: restTimeoutMs,
      ...options,
    });
  }

  #act(id: string, action: string, options: CallOptions): Promise<SandboxInfo> {
    return this.context.api.call<SandboxInfo>({
      method: 'POST',
      path: `/sandbox/${encodeURIComponent(id)}/${action}`,
      // Done twice it is done once.
      idempotent: true,
      timeoutMs: restTimeoutMs,
      ...options,
    });
  }

  /** Deletes many: these ids, or everything of one's own that has all these labels, or everything of one's own. */
  async deleteMany(
    which: { ids: readonly string[] } | { labels: readonly string[] } | { all: true; userId?: string },
    options: CallOptions = {},
  ): Promise<DeleteResult> {
    const result: DeleteResult = { succeeded: [], failed: [] };
    for (const body of deleteBodies(which)) {
      const answer = await this.context.api.call<{
        succeeded?: string[];
        failed?: { sandbox_id: string; error: string }[];
      }>({ method: 'DELETE', path: '/sandbox', body, ...options });
      result.succeeded.push(...(answer.succeeded ?? []));
      result.failed.push(...(answer.failed ?? []).map((one) => ({ id: one.sandbox_id, error: one.error })));
    }
    for (const id of result.succeeded) this.context.access.drop(id);
    return result;
  }

  /** Short states of many sandboxes; unknown ids are missing from the answer. */
  async statuses(ids: readonly string[], options: CallOptions = {}): Promise<Map<string, SandboxState>> {
    const found = new Map<string, SandboxState>();
    const unique = [...new Set(ids)];
    for (let at = 0; at < unique.length; at += statusBatchSize) {
      const answer = await this.context.api.call<{ statuses: WireStatus[] }>({
        method: 'POST',
        path: '/sandbox/status:batchGet',
        body: { sandbox_ids: unique.slice(at, at + statusBatchSize) },
        idempotent: true,
        ...options,
      });
      for (const one of answer.statuses) {
        found.set(one.sandbox_id, {
          id: one.sandbox_id,
          status: one.status,
          errorType: one.error_type ?? undefined,
          errorMessage: one.error_message ?? undefined,
          pendingImageBuildId: one.pending_image_build_id ?? undefined,
        });
      }
    }
    return found;
  }

  /** Output of the start command, newest 1 MiB. */
  async logs(id: string, options: CallOptions = {}): Promise<string> {
    const answer = await this.context.api.call<{ logs: string }>({
      method: 'GET',
      path: `/sandbox/${encodeURIComponent(id)}/logs`,
      ...options,
    });
    return answer.logs;
  }

  /** State and, where it has ended, why. */
  errorContext(id: string, options: CallOptions = {}): Promise<ErrorContext> {
    return this.context.api.call<ErrorContext>({
      method: 'GET',
      path: `/sandbox/${encodeURIComponent(id)}/error-context`,
      ...options,
    });
  }

  /** Waits until the sandbox runs; fails with the reason when it ends instead. */
  async waitUntilRunning(id: string, options: WaitOptions = {}): Promise<SandboxInfo> {
    // The server answers as soon as it runs; who wants to see the stages is answered each second.
    const wait = options.onState ? 1 : 20;
    for (;;) {
      const begun = performance.now();
      const info = await this.context.api.call<SandboxInfo>({
        method: 'GET',
        path: `/sandbox/${encodeURIComponent(id)}`,
        query: { wait },
        signal: options.signal,
      });
      options.onState?.(info);
      if (info.status === 'RUNNING') return info;
      if (endedStatuses.includes(info.status)) throw notStarted(info);
      // A server that does not wait must not be asked in a tight loop.
      if (performance.now() - begun < minimumPollMs) {
        await pause(minimumPollMs * (0.8 + Math.random() * 0.4), options.signal);
      }
    }
  }

  /** The full id for one that may be shortened. A full one is not looked up: the call it is for will tell. */
  async resolveId(idOrPrefix: string, options: CallOptions = {}): Promise<string> {
    return fullIdPattern.test(idOrPrefix) ? idOrPrefix : (await this.find(idOrPrefix, options)).id;
  }

  /** The one sandbox whose id begins with `prefix`. An empty one is refused: it would mean any sandbox that is alone. */
  async find(prefix: string, options: CallOptions = {}): Promise<SandboxInfo> {
    if (!idBeginningPattern.test(prefix))
      throw new ValidationError(
        prefix === ''
          ? 'the id of a sandbox is empty'
          : `${JSON.stringify(prefix)} is not the id of a sandbox`,
        { code: 'INVALID_REQUEST', hint: 'Give an id, or its beginning, as `sandlot ls` shows them.' },
        [],
      );
    try {
      return await this.info(prefix, options);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      return await this.#findByPrefix(prefix, error, options);
    }
  }

  async #findByPrefix(prefix: string, notFound: SandlotError, options: CallOptions): Promise<SandboxInfo> {
    const found: SandboxInfo[] = [];
    for await (const info of this.list({ idPrefix: prefix, pageSize: 1_000 }, options)) {
      // Checked here as well: a server that does not know the filter answers with all.
      if (info.id.startsWith(prefix)) found.push(info);
    }
    // One that lives goes before any number that have ended.
    const alive = found.filter((info) => !endedStatuses.includes(info.status));
    const candidates = alive.length > 0 ? alive : found;
    if (candidates.length === 1 && candidates[0]) return candidates[0];
    if (candidates.length === 0) throw notFound;
    throw new NotFoundError(
      `"${prefix}" is the beginning of ${candidates.length} ids: ${candidates
        .slice(0, 5)
        .map((info) => info.id)
        .join(', ')}${candidates.length > 5 ? ', …' : ''}`,
      { code: 'AMBIGUOUS_ID', hint: 'Give more of the id.' },
    );
  }
}

interface WireStatus {
  sandbox_id: string;
  status: SandboxInfo['status'];
  error_type?: string | null;
  error_message?: string | null;
  pending_image_build_id?: string | null;
}

function notStarted(info: SandboxInfo): SandboxNotRunningError {
  const why = info.errorMessage ?? info.errorType ?? info.terminationReason ?? 'no reason is recorded';
  return new SandboxNotRunningError(
    `sandbox ${info.id} does not run (${info.status}): ${why}`,
    { code: info.errorType ?? 'SANDBOX_NOT_RUNNING' },
    info.status,
    info.errorType ?? undefined,
  );
}

function* deleteBodies(which: Parameters<Sandboxes['deleteMany']>[0]): Generator<Record<string, unknown>> {
  if ('labels' in which) yield { labels: which.labels, all_users: false };
  else if ('all' in which) yield { user_id: which.userId, all_users: false };
  else {
    for (let at = 0; at < which.ids.length; at += deleteBatchSize) {
      yield { sandbox_ids: which.ids.slice(at, at + deleteBatchSize), all_users: false };
    }
  }
}
