/** What every operation works with. Put together once by `start.ts`. */
import type { Logger } from 'pino';
import type { Actor } from '../domain/access.js';
import type { Fleet } from '../nodes/fleet.js';
import type { Store } from '../store/store.js';
import type { ChangeHub } from './change-hub.js';
import type { CheckpointWork } from './checkpoint-work.js';
import type { Dispatcher } from './dispatch.js';
import type { GatewayTokens } from './gateway-tokens.js';
import type { Lifecycle } from './lifecycle.js';
import type { Resumes } from './resumes.js';

/** The parts that operations share. */
export interface AppContext {
  store: Store;
  fleet: Fleet;
  hub: ChangeHub;
  dispatcher: Dispatcher;
  lifecycle: Lifecycle;
  resumes: Resumes;
  checkpoints: CheckpointWork;
  tokens: GatewayTokens;
  log: Logger;
  /** Milliseconds since 1970. */
  now(): number;
}

/** Who asks, and by which URL we are reached: what answers depend on beside the request itself. */
export interface Caller {
  actor: Actor;
  /** Goes along to the node, so that its log can be searched for it. */
  requestId: string;
  /** `https://host`, without a slash at the end. */
  publicOrigin: string;
  /** `User-Agent`, which tells the generation of Prime's clients. */
  userAgent: string;
  /** Aborted when the client goes away. */
  signal: AbortSignal;
}
