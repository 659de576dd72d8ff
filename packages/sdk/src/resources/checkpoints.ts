/** `client.checkpoints`: what was saved of sandboxes. Made by `sandbox.checkpoint`, used by `create({checkpoint})` and `sandbox.rollback`. */
import type { BatchCheckpoints, Checkpoint, CheckpointList, DeletedCheckpoints } from '@sandlot/protocol';
import { CheckpointFailedError, NotFoundError } from '../errors.js';
import type { ApiClient, CallOptions } from '../http/api-client.js';

/** One checkpoint, as `GET /sandbox/checkpoints/{id}` answers. Times are ISO 8601, UTC. */
export type CheckpointInfo = Checkpoint;

/** What is to be saved. */
export interface CheckpointOptions {
  /** Memory and processes too, of the same instant; the disk alone when absent. */
  memory?: boolean | undefined;
  /** It is deleted after so many seconds. */
  ttl?: number | undefined;
  /** Resolve when the instant is taken, and not only when it can be restored. */
  noWait?: boolean | undefined;
}

/** Ids in one `checkpoints:batchGet`. */
const batchSize = 100;
/** The memory of a large machine goes to a disk first. */
const saveTimeoutMs = 120_000;
/** A server answers a wait after this at the latest, seconds. */
const waitSeconds = 20;
const fullIdPattern = /^[a-z][a-z2-7]{19}$/;

/** Calls about checkpoints. */
export class Checkpoints {
  constructor(private readonly api: ApiClient) {}

  /**
   * Saves a running sandbox, which goes on, or a paused one, which stays so. What happens in it after the call is not in the checkpoint.
   * @throws CheckpointFailedError when it could not be saved; it is as it was
   */
  async create(
    sandboxId: string,
    { memory, ttl, noWait = false }: CheckpointOptions = {},
    options: CallOptions = {},
  ): Promise<CheckpointInfo> {
    const made = await this.api.call<CheckpointInfo>({
      method: 'POST',
      path: `/sandbox/${encodeURIComponent(sandboxId)}/checkpoints`,
      body: { ...(memory ? { with_memory: true } : {}), ...(ttl === undefined ? {} : { ttl_seconds: ttl }) },
      timeoutMs: saveTimeoutMs,
      ...options,
    });
    return noWait || made.state === 'DURABLE' ? made : this.waitUntilDurable(made.id, options, made);
  }

  /** Waits until it can be restored. @throws CheckpointFailedError */
  async waitUntilDurable(
    id: string,
    options: CallOptions = {},
    known?: CheckpointInfo,
  ): Promise<CheckpointInfo> {
    for (let info = known; ; ) {
      if (info?.state === 'DURABLE') return info;
      if (info?.state === 'FAILED' || info?.state === 'DELETING')
        throw new CheckpointFailedError(
          `checkpoint ${id} cannot be restored (${info.state}): ${info.error ?? 'no reason is recorded'}`,
          { code: 'CHECKPOINT_FAILED' },
        );
      info = await this.api.call<CheckpointInfo>({
        method: 'GET',
        path: pathOf(id),
        query: { wait: waitSeconds },
        ...options,
      });
    }
  }

  /** One of them. */
  get(id: string, options: CallOptions = {}): Promise<CheckpointInfo> {
    return this.api.call<CheckpointInfo>({ method: 'GET', path: pathOf(id), ...options });
  }

  /** Those of a sandbox, also of one that is gone; of all sandboxes (the newest 1,000) without an id. Oldest first. */
  async list(sandboxId?: string, options: CallOptions = {}): Promise<CheckpointInfo[]> {
    const path =
      sandboxId === undefined
        ? '/sandbox/checkpoints'
        : `/sandbox/${encodeURIComponent(sandboxId)}/checkpoints`;
    return (await this.api.call<CheckpointList>({ method: 'GET', path, ...options })).checkpoints;
  }

  /** Many by id; unknown ones are missing. */
  async getMany(ids: readonly string[], options: CallOptions = {}): Promise<Map<string, CheckpointInfo>> {
    const found = new Map<string, CheckpointInfo>();
    const unique = [...new Set(ids)];
    for (let at = 0; at < unique.length; at += batchSize) {
      const answer = await this.api.call<BatchCheckpoints>({
        method: 'POST',
        path: '/sandbox/checkpoints:batchGet',
        body: { checkpoint_ids: unique.slice(at, at + batchSize) },
        idempotent: true,
        ...options,
      });
      for (const one of answer.checkpoints) found.set(one.id, one);
    }
    return found;
  }

  /** Deletes one; what was made from it lives on. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.api.call({ method: 'DELETE', path: pathOf(id), ...options });
  }

  /** Deletes all of a sandbox; `errors` says which could not be. */
  deleteOf(sandboxId: string, options: CallOptions = {}): Promise<DeletedCheckpoints> {
    return this.api.call<DeletedCheckpoints>({
      method: 'DELETE',
      path: `/sandbox/${encodeURIComponent(sandboxId)}/checkpoints`,
      ...options,
    });
  }

  /** The full id for one that may be shortened. */
  async resolveId(idOrPrefix: string, options: CallOptions = {}): Promise<string> {
    if (fullIdPattern.test(idOrPrefix)) return idOrPrefix;
    const { checkpoints } = await this.api.call<CheckpointList>({
      method: 'GET',
      path: '/sandbox/checkpoints',
      query: { id_prefix: idOrPrefix },
      ...options,
    });
    const [first] = checkpoints;
    if (checkpoints.length === 1 && first) return first.id;
    throw new NotFoundError(
      checkpoints.length === 0
        ? `there is no checkpoint whose id begins with ${JSON.stringify(idOrPrefix)}`
        : `"${idOrPrefix}" is the beginning of ${checkpoints.length} ids of checkpoints`,
      {
        code: checkpoints.length === 0 ? 'NOT_FOUND' : 'AMBIGUOUS_ID',
        hint: 'Give an id as `sandlot checkpoint ls` shows them.',
      },
    );
  }
}

function pathOf(id: string): string {
  return `/sandbox/checkpoints/${encodeURIComponent(id)}`;
}
