/** Checkpoints of the node, for the control plane, and what snapshots take of its disk. */
import type { NodeCheckpointOrder } from '@sandlot/protocol';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { CheckpointRecord } from '../../checkpoints/checkpoint-record.js';
import type { ServerParts } from '../server-parts.js';

interface ById {
  Params: { id: string };
}

/** Adds the routes. */
export function checkpointRoutes(
  app: FastifyInstance,
  { sandboxes, checkpoints, snapshots }: ServerParts,
): void {
  app.get('/v1/snapshots', async () => ({ snapshots: await snapshots.use() }));

  const find = (id: string): CheckpointRecord => {
    const record = checkpoints.find(id);
    if (!record) throw Object.assign(new Error(`no checkpoint ${id} on this node`), { statusCode: 404 });
    return record;
  };

  app.post<ById & { Body: NodeCheckpointOrder }>('/v1/sandboxes/:id/checkpoints', async (request) =>
    checkpoints.describe(await sandboxes.checkpoint(request.params.id, request.body)),
  );

  app.get('/v1/checkpoints', async () => ({ checkpoints: await checkpoints.list() }));

  app.get<ById>('/v1/checkpoints/:id', (request) => checkpoints.describe(find(request.params.id)));

  app.post<ById>('/v1/checkpoints/:id/settle', async (request) => {
    const record = find(request.params.id);
    await checkpoints.settle(record);
    return checkpoints.describe(record);
  });

  app.post<ById & { Querystring: { memory?: string; quick?: string } }>(
    '/v1/checkpoints/:id/check',
    async (request) => {
      const record = find(request.params.id);
      const memory = request.query.memory === '1';
      if (request.query.quick === '1') checkpoints.checkFit(record, memory);
      else await checkpoints.check(record, memory, whileAsked(request));
      return checkpoints.describe(record);
    },
  );

  app.delete<ById>('/v1/checkpoints/:id', async (request) => {
    await checkpoints.remove(request.params.id);
    return {};
  });
}

/** Aborted when whoever asks has gone. */
function whileAsked({ raw }: FastifyRequest): AbortSignal {
  const gone = new AbortController();
  raw.socket.once('close', () => gone.abort(new Error('nobody waits for the answer any more')));
  return gone.signal;
}
