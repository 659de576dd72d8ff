/** Handlers of checkpoints and rollbacks. */
import {
  batchGetCheckpoints,
  createCheckpoint,
  deleteCheckpoint,
  deleteSandboxCheckpoints,
  getCheckpoint,
  listAllCheckpoints,
  listCheckpoints,
} from '../../app/checkpoints.js';
import type { AppContext } from '../../app/context.js';
import { rollbackSandbox } from '../../app/rollback-sandbox.js';
import type { Handlers } from '../handlers.js';

type CheckpointOperations =
  | 'createCheckpoint'
  | 'listCheckpoints'
  | 'deleteSandboxCheckpoints'
  | 'listAllCheckpoints'
  | 'getCheckpoint'
  | 'deleteCheckpoint'
  | 'batchGetCheckpoints'
  | 'rollbackSandbox';

/** The handlers. */
export function checkpointHandlers(app: AppContext): Handlers<CheckpointOperations> {
  const sandboxOf = (params: Record<string, string>) => params['sandbox_id'] ?? '';
  const idOf = (params: Record<string, string>) => params['checkpoint_id'] ?? '';
  return {
    createCheckpoint: ({ caller, params, body }) => createCheckpoint(app, caller, sandboxOf(params), body),
    listCheckpoints: ({ caller, params, query }) =>
      listCheckpoints(app, caller.actor, sandboxOf(params), query.checkpoint_id),
    deleteSandboxCheckpoints: ({ caller, params }) =>
      deleteSandboxCheckpoints(app, caller, sandboxOf(params)),
    listAllCheckpoints: ({ caller, query }) => listAllCheckpoints(app, caller.actor, query),
    getCheckpoint: ({ caller, params, query }) => getCheckpoint(app, caller, idOf(params), query.wait),
    deleteCheckpoint: ({ caller, params }) => deleteCheckpoint(app, caller, idOf(params)),
    batchGetCheckpoints: ({ caller, body }) => batchGetCheckpoints(app, caller.actor, body.checkpoint_ids),
    rollbackSandbox: ({ caller, params, body }) => rollbackSandbox(app, caller, sandboxOf(params), body),
  };
}
