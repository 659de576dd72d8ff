/** Handlers of `/sandbox…`. Each takes what the request says and calls one operation. */

import { batchGetJobs } from '../../app/background-jobs.js';
import type { AppContext } from '../../app/context.js';
import { createSandbox } from '../../app/create-sandbox.js';
import { bulkDelete, deleteSandbox } from '../../app/delete-sandbox.js';
import { getEgressPolicy, putEgressPolicy } from '../../app/egress-policy.js';
import { forkSandbox } from '../../app/fork-sandbox.js';
import { listSandboxes } from '../../app/list-sandboxes.js';
import { PageSnapshots } from '../../app/page-snapshots.js';
import { pauseSandbox, resumeSandbox } from '../../app/pause-sandbox.js';
import {
  authorizeSandbox,
  batchGetStatus,
  getErrorContext,
  getLogs,
  getSandbox,
} from '../../app/read-sandbox.js';
import type { Handlers } from '../handlers.js';

type SandboxOperations =
  | 'createSandbox'
  | 'listSandboxes'
  | 'bulkDeleteSandboxes'
  | 'batchGetStatus'
  | 'batchGetJobs'
  | 'getSandbox'
  | 'deleteSandbox'
  | 'forkSandbox'
  | 'pauseSandbox'
  | 'resumeSandbox'
  | 'getLogs'
  | 'getErrorContext'
  | 'authorizeSandbox'
  | 'getEgressPolicy'
  | 'putEgressPolicy';

/** The handlers. */
export function sandboxHandlers(app: AppContext): Handlers<SandboxOperations> {
  const snapshots = new PageSnapshots(app.now);
  const idOf = (params: Record<string, string>) => params['sandbox_id'] ?? '';
  return {
    createSandbox: ({ caller, body, query }) => createSandbox(app, caller, body, query.wait),
    listSandboxes: ({ caller, query }) => listSandboxes(app, snapshots, caller, query),
    bulkDeleteSandboxes: ({ caller, body }) => bulkDelete(app, caller, body),
    batchGetStatus: ({ caller, body }) => batchGetStatus(app, caller.actor, body.sandbox_ids),
    batchGetJobs: ({ caller, body }) => batchGetJobs(app, caller, body.jobs),
    getSandbox: ({ caller, params, query }) => getSandbox(app, caller, idOf(params), query.wait),
    deleteSandbox: ({ caller, params }) => deleteSandbox(app, caller, idOf(params)),
    forkSandbox: ({ caller, params, body }) => forkSandbox(app, caller, idOf(params), body),
    pauseSandbox: ({ caller, params }) => pauseSandbox(app, caller, idOf(params)),
    resumeSandbox: ({ caller, params }) => resumeSandbox(app, caller, idOf(params)),
    getLogs: ({ caller, params }) => getLogs(app, caller, idOf(params)),
    getErrorContext: ({ caller, params }) => getErrorContext(app, caller.actor, idOf(params)),
    authorizeSandbox: ({ caller, params, body }) => authorizeSandbox(app, caller, idOf(params), body),
    getEgressPolicy: ({ caller, params }) => getEgressPolicy(app, caller.actor, idOf(params)),
    putEgressPolicy: ({ caller, params, body }) => putEgressPolicy(app, caller, idOf(params), body),
  };
}
