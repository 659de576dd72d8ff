/**
 * REST calls of one sandbox's gateway (files, stat): token, one re-auth after a 401, short repeats
 * while the sandbox is between states, and an error that says why it does not run.
 */
import type { ErrorContext } from '@sandlot/protocol';
import { AuthenticationError, ConflictError, SandboxNotRunningError } from './errors.js';
import type { GatewayAccess, GatewayEntry } from './gateway-access.js';
import { type ApiClient, type CallOptions, queryString } from './http/api-client.js';
import { errorFromAnswer } from './http/error-answer.js';
import { pause, withRetries } from './http/retry.js';
import type { TransportResponse } from './http/transport.js';

/** Pauses after a 409 of a sandbox that is said to run (adopted again after a restart, say). */
const notYetPausesMs = [250, 500, 1_000];

/** One call of the gateway. */
export interface GatewayCall extends CallOptions {
  method: 'GET' | 'PUT' | 'POST';
  route: string;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  /** Makes the body; called again for a repeat. */
  body?: () => AsyncIterable<Uint8Array> | Uint8Array;
  contentLength?: number | undefined;
  /** False when `body` can be made only once. */
  repeatable?: boolean;
}

/** Caller of the gateways of all sandboxes of a client. */
export class GatewayClient {
  constructor(
    private readonly api: ApiClient,
    private readonly access: GatewayAccess,
  ) {}

  /** Sends the call; the answer is a success whose body the caller reads. */
  async send(sandboxId: string, call: GatewayCall): Promise<TransportResponse> {
    const repeatable = call.repeatable ?? true;
    const policy = repeatable ? this.api.options.retry : { ...this.api.options.retry, maxRetries: 0 };
    return withRetries(policy, repeatable, call.signal, async () => {
      for (let attempt = 0, reauthenticated = false; ; ) {
        const entry = await this.access.get(sandboxId, { signal: call.signal });
        const answer = await this.#sendOnce(entry, call);
        if (answer.status < 400) return answer;
        const error = await errorFromAnswer(`${call.method} ${call.route}`, answer);
        if (error instanceof AuthenticationError) {
          this.access.drop(sandboxId, entry);
          if (reauthenticated || !repeatable) throw error;
          reauthenticated = true;
          continue;
        }
        if (!(error instanceof ConflictError)) throw error;
        const reason = await this.whyNotRunning(sandboxId, error, call.signal);
        if (reason) throw reason;
        const wait = notYetPausesMs[attempt++];
        if (wait === undefined || !repeatable) throw error;
        await pause(wait, call.signal);
      }
    });
  }

  /** The reason why a sandbox does not run, as an error; undefined while it does, or when nobody knows. */
  async whyNotRunning(
    sandboxId: string,
    cause: Error,
    signal?: AbortSignal,
  ): Promise<SandboxNotRunningError | undefined> {
    let context: ErrorContext;
    try {
      context = await this.api.call<ErrorContext>({
        method: 'GET',
        path: `/sandbox/${encodeURIComponent(sandboxId)}/error-context`,
        timeoutMs: 10_000,
        signal,
      });
    } catch {
      // The first failure is the one to report.
      return undefined;
    }
    if (context.status === 'RUNNING') return undefined;
    const unknown = context.status === 'TERMINATED' ? 'it was deleted or shut down' : 'no reason is recorded';
    const why = context.errorMessage ?? context.errorType ?? unknown;
    return new SandboxNotRunningError(
      `sandbox ${sandboxId} does not run (${context.status}): ${why}`,
      { code: 'SANDBOX_NOT_RUNNING', status: 409, cause },
      context.status,
      context.errorType ?? undefined,
    );
  }

  #sendOnce(entry: GatewayEntry, call: GatewayCall): Promise<TransportResponse> {
    return this.api.options.transport.send({
      method: call.method,
      url: `${entry.baseUrl}/${call.route}${queryString(call.query)}`,
      headers: {
        authorization: `Bearer ${entry.token}`,
        'user-agent': this.api.options.userAgent,
        ...call.headers,
      },
      body: call.body?.(),
      contentLength: call.contentLength,
      signal: call.signal,
      // A transfer may take as long as it needs; it fails when nothing moves.
      idleTimeoutMs: call.timeoutMs ?? 120_000,
    });
  }
}
