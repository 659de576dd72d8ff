/** `GET /v1/node`, `/healthz`, `/metrics`, `POST /v1/shutdown`. */
import type { FastifyInstance } from 'fastify';
import type { ServerParts } from '../server-parts.js';

/** Adds the routes. */
export function nodeRoutes(app: FastifyInstance, { describe, metrics, shutdown }: ServerParts): void {
  app.get('/v1/node', () => describe());
  app.get('/healthz', () => ({ status: 'ok' }));
  app.get('/metrics', async (_request, reply) => {
    void reply.type('text/plain; version=0.0.4');
    return metrics.text();
  });
  app.post<{ Body: { removeNetwork?: boolean } | null }>('/v1/shutdown', async (request, reply) => {
    const mode = request.body?.removeNetwork ? 'remove' : 'keep';
    await reply.status(202).send({ mode });
    shutdown(mode);
    return reply;
  });
}
