/** Sandboxes of the node, for the control plane. */
import type { EgressPolicy, NodeFork, NodeResume, NodeSandboxSpec } from '@sandlot/protocol';
import type { FastifyInstance } from 'fastify';
import { collect } from '../../guest/collect.js';
import { GuestCallError } from '../../guest/guest-client.js';
import { SandboxConflictError } from '../../sandbox/conflict.js';
import type { Sandbox } from '../../sandbox/sandbox.js';
import type { ServerParts } from '../server-parts.js';

interface ById {
  Params: { id: string };
}

/** Files that are read for the control plane are small: exit codes of background jobs. */
const readFileLimitBytes = 1024 * 1024;

/** Adds the routes. */
export function sandboxRoutes(app: FastifyInstance, { sandboxes }: ServerParts): void {
  const find = (id: string): Sandbox => {
    const sandbox = sandboxes.get(id);
    if (!sandbox) throw Object.assign(new Error(`no sandbox ${id} on this node`), { statusCode: 404 });
    return sandbox;
  };

  app.put<ById & { Body: NodeSandboxSpec }>('/v1/sandboxes/:id', async (request, reply) => {
    if (request.body.sandboxId !== request.params.id) {
      throw Object.assign(new Error('the path and the body name different sandboxes'), { statusCode: 400 });
    }
    return reply.status(202).send(await sandboxes.put(request.body));
  });

  app.delete<ById & { Querystring: { generation?: string } }>('/v1/sandboxes/:id', (request) =>
    sandboxes.delete(request.params.id, Number(request.query.generation ?? 0)),
  );

  app.get('/v1/sandboxes', () => ({ sandboxes: sandboxes.list().map((sandbox) => sandbox.report) }));

  app.post<ById & { Querystring: { generation?: string } }>(
    '/v1/sandboxes/:id/acknowledge',
    async (request) => {
      await sandboxes.acknowledge(request.params.id, Number(request.query.generation ?? 0));
      return {};
    },
  );

  app.post<ById & { Querystring: { generation?: string } }>('/v1/sandboxes/:id/pause', (request) =>
    sandboxes.pause(request.params.id, Number(request.query.generation ?? 0)),
  );

  app.post<ById & { Body: NodeResume }>('/v1/sandboxes/:id/resume', async (request, reply) =>
    reply.status(202).send(await sandboxes.resume(request.params.id, request.body)),
  );

  app.post<ById & { Body: NodeFork }>('/v1/sandboxes/:id/fork', async (request, reply) =>
    reply.status(202).send({ reports: await sandboxes.fork(request.params.id, request.body) }),
  );

  app.get<ById>('/v1/sandboxes/:id/logs', async (request) => ({
    logs: await find(request.params.id).logs(),
  }));

  app.put<ById & { Body: EgressPolicy }>('/v1/sandboxes/:id/egress-policy', async (request) => ({
    appliedGeneration: await find(request.params.id).applyEgress(request.body),
  }));

  app.post<ById & { Body: { path: string; offset?: number; length?: number } }>(
    '/v1/sandboxes/:id/read-file',
    async (request) => {
      const { path, offset, length } = request.body;
      const { guest } = find(request.params.id);
      if (!guest) throw new SandboxConflictError(`${request.params.id} does not run`);
      try {
        const window = {
          ...(offset !== undefined ? { offset } : {}),
          length: Math.min(length ?? readFileLimitBytes, readFileLimitBytes),
        };
        const file = await guest.readFile(path, window);
        const content = await collect(
          file.body,
          readFileLimitBytes,
          () => new Error(`${path} was read beyond the window asked for`),
        );
        return { found: true, contentBase64: content.toString('base64'), size: file.size };
      } catch (error) {
        if (error instanceof GuestCallError && error.code === 'ENOENT') return { found: false };
        throw error;
      }
    },
  );
}
