/** What the node's HTTP routes are made of; put together by `agent.ts`. */
import type { ImageStore } from '@sandlot/images';
import type { NodeInfo } from '@sandlot/protocol';
import type { Logger } from 'pino';
import type { CheckpointStore } from '../checkpoints/checkpoint-store.js';
import type { Gateway } from '../gateway/gateway.js';
import type { NodeMetrics } from '../metrics.js';
import type { Sandboxes } from '../sandbox/sandboxes.js';
import type { SnapshotStore } from '../snapshots/snapshot-store.js';

/** What the routes use. */
export interface ServerParts {
  sandboxes: Sandboxes;
  checkpoints: CheckpointStore;
  images: ImageStore;
  snapshots: SnapshotStore;
  gateway: Gateway;
  metrics: NodeMetrics;
  describe(): Promise<NodeInfo>;
  shutdown(mode: 'keep' | 'remove'): void;
  log: Logger;
}
