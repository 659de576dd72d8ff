/**
 * The gateway: exec, file and session traffic of sandboxes, below `/gw/{user_ns}/{sandbox_id}`.
 * Checks the token, finds the sandbox, counts the use as activity, and hands over to the REST
 * routes or to the Connect service.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { SandboxConflictError } from '../sandbox/conflict.js';
import type { Sandbox } from '../sandbox/sandbox.js';
import type { Sandboxes } from '../sandbox/sandboxes.js';
import { createCommandSessionHandler } from './command-session.js';
import { GatewayError, sendFailure } from './failures.js';
import { confinedRoutes, restRoutes } from './rest.js';
import { forbidden, SandboxAccess } from './sandbox-access.js';
import type { TokenVerifier } from './token.js';

const connectPrefix = 'command_session.CommandSession/';

/** Serves all gateway requests of a node. */
export class Gateway {
  readonly #connect = createCommandSessionHandler();

  constructor(
    private readonly sandboxes: Sandboxes,
    private readonly verifier: TokenVerifier,
    private readonly log: Logger,
  ) {}

  /** True for the paths that are ours. */
  owns(url: string): boolean {
    return url.startsWith('/gw/');
  }

  /** Never rejects: every failure is an answer. */
  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [path = '', search = ''] = splitOnce(request.url ?? '', '?');
    const [, , , sandboxId = '', ...rest] = path.split('/');
    const route = rest.join('/');
    const isConnect = route.startsWith(connectPrefix);
    let done: (() => void) | undefined;
    const abort = new AbortController();
    response.once('close', () => {
      // Most close because all is said: an abort then would cost more than the rest of a small exec.
      if (!response.writableFinished) abort.abort(new Error('the client went away'));
    });
    try {
      const access = await this.#find(request, sandboxId, isConnect, abort.signal);
      const { sandbox } = access;
      done = sandbox.activity.begin();
      if (isConnect) {
        request.url = `/${route}`;
        await this.#connect(request, response, access);
        return;
      }
      const name = `${request.method} ${route}`;
      if (access.isConfined && !confinedRoutes.has(name))
        throw forbidden(
          `The token runs commands in the default view of the sandbox only; ${name} acts outside of it. Use a command, or a token of the owner's.`,
        );
      const handler = restRoutes.get(name);
      if (!handler)
        throw new GatewayError(404, 'no_such_route', `The gateway has no ${request.method} /${route}.`);
      await handler({
        sandbox,
        access,
        request,
        response,
        query: new URLSearchParams(search),
        signal: abort.signal,
      });
    } catch (error) {
      if (isConnect && error instanceof GatewayError) sendConnectFailure(response, error);
      else {
        const failure = sendFailure(response, error);
        if (failure.status >= 500)
          this.log.warn({ err: error, sandbox: sandboxId, route }, 'gateway call failed');
      }
      // What the client still sends is of no use; reading it keeps the connection good.
      request.resume();
    } finally {
      done?.();
    }
  }

  /** What the request may do, once its sandbox runs: one that is paused is woken by it. */
  async #find(
    request: IncomingMessage,
    sandboxId: string,
    isConnect: boolean,
    signal: AbortSignal,
  ): Promise<SandboxAccess> {
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
    const claims = token ? this.verifier.check(token, sandboxId) : undefined;
    if (!claims) {
      throw new GatewayError(
        401,
        'unauthenticated',
        'The gateway token is missing, expired or of another sandbox. Ask POST /sandbox/{id}/auth for a new one.',
      );
    }
    const sandbox = this.sandboxes.get(sandboxId);
    // A token may be of the generation that a paused one is about to get.
    const isAhead = sandbox && claims.gen > sandbox.spec.generation && !sandbox.isResting;
    if (!sandbox || isAhead || isOver(sandbox)) {
      const message = sandbox?.report.message ?? 'It is not on this node any more.';
      throw new GatewayError(
        isConnect ? 404 : 409,
        'sandbox_not_running',
        `The sandbox does not run. ${message}`,
      );
    }
    if (claims.gen < (sandbox.spec.tokensFrom ?? sandbox.spec.generation)) {
      throw new GatewayError(
        401,
        'unauthenticated',
        'The gateway token is of an earlier generation of the sandbox. Ask POST /sandbox/{id}/auth for a new one.',
      );
    }
    if (sandbox.isResting) await wake(sandbox, isConnect, signal);
    if (!sandbox.guest) {
      throw new GatewayError(
        isConnect ? 503 : 409,
        'sandbox_not_running',
        sandbox.isRebooting
          ? 'The sandbox is rebooting: try again in a moment.'
          : `The sandbox is ${sandbox.report.state}: wait until it is RUNNING.`,
      );
    }
    return new SandboxAccess(sandbox, claims.view === true);
  }
}

async function wake(sandbox: Sandbox, isConnect: boolean, signal: AbortSignal): Promise<void> {
  try {
    await sandbox.awake(signal);
  } catch (cause) {
    if (!(cause instanceof SandboxConflictError)) throw cause;
    throw new GatewayError(isConnect ? 503 : 409, 'sandbox_paused', cause.message, { cause });
  }
}

const connectCodes = new Map([
  [401, 'unauthenticated'],
  [403, 'permission_denied'],
  [404, 'not_found'],
  [503, 'unavailable'],
]);

/** Connect's form of an error before the first message (connectrpc.com/docs/protocol, "Error end-stream"). */
function sendConnectFailure(response: ServerResponse, failure: GatewayError): void {
  response.writeHead(failure.status, { 'content-type': 'application/json' });
  response.end(
    JSON.stringify({ code: connectCodes.get(failure.status) ?? 'internal', message: failure.detail }),
  );
}

function isOver(sandbox: Sandbox): boolean {
  return ['stopping', 'stopped', 'failed'].includes(sandbox.report.state);
}

function splitOnce(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}
