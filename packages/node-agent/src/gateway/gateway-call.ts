/** What the gateway hands to its REST routes. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Sandbox } from '../sandbox/sandbox.js';
import type { SandboxAccess } from './sandbox-access.js';

/** One request that has passed the checks. */
export interface GatewayCall {
  sandbox: Sandbox;
  /** What its token allows. */
  access: SandboxAccess;
  request: IncomingMessage;
  response: ServerResponse;
  query: URLSearchParams;
  /** Aborted when the client goes away. */
  signal: AbortSignal;
}
