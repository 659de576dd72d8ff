/** What a sandbox handle needs of its client: an interface, because `client.sandboxes` makes the handles. */
import type { GatewayAccess } from './gateway-access.js';
import type { GatewayClient } from './gateway-client.js';
import type { ApiClient } from './http/api-client.js';
import type { Checkpoints } from './resources/checkpoints.js';
import type { SandboxRecords } from './resources/sandbox-records.js';

/** The parts of a client behind a handle. */
export interface SandboxContext {
  api: ApiClient;
  access: GatewayAccess;
  gateway: GatewayClient;
  sandboxes(): SandboxRecords;
  checkpoints(): Checkpoints;
}
