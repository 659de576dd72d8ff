/** What a sandbox handle needs of its client: an interface, because `client.sandboxes` makes the handles. */
import type { ErrorContext } from '@sandlot/protocol';
import type { GatewayAccess } from './gateway-access.js';
import type { GatewayClient } from './gateway-client.js';
import type { ApiClient, CallOptions } from './http/api-client.js';
import type { SandboxInfo, WaitOptions } from './resources/sandbox-types.js';

/** The calls about one sandbox. */
export interface SandboxCalls {
  info(id: string, options?: CallOptions): Promise<SandboxInfo>;
  waitUntilRunning(id: string, options?: WaitOptions): Promise<SandboxInfo>;
  logs(id: string, options?: CallOptions): Promise<string>;
  errorContext(id: string, options?: CallOptions): Promise<ErrorContext>;
  delete(id: string, options?: CallOptions): Promise<void>;
}

/** The parts of a client behind a handle. */
export interface SandboxContext {
  api: ApiClient;
  access: GatewayAccess;
  gateway: GatewayClient;
  calls(): SandboxCalls;
}
