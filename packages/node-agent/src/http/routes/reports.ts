/** The report stream: all sandboxes, then each change, as long as the control plane listens. */
import type { SandboxReport } from '@sandlot/protocol';
import type { FastifyInstance } from 'fastify';
import type { ServerParts } from '../server-parts.js';

const keepaliveMs = 10_000;
/** A listener that falls behind by this much is cut off; it asks again and gets everything. */
const backlogLimitBytes = 16 * 1024 * 1024;

/** Adds the route. */
export function reportRoutes(app: FastifyInstance, { sandboxes }: ServerParts): void {
  app.get('/v1/reports', (_request, reply) => {
    reply.hijack();
    const { raw } = reply;
    raw.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const send = (line: SandboxReport | { synced: true } | { keepalive: true }) => {
      raw.write(`${JSON.stringify(line)}\n`);
      if (raw.writableLength > backlogLimitBytes) raw.destroy();
    };
    const unsubscribe = sandboxes.hub.subscribe(send);
    for (const sandbox of sandboxes.list()) send(sandbox.report);
    send({ synced: true });
    const timer = setInterval(() => send({ keepalive: true }), keepaliveMs);
    raw.once('close', () => {
      clearInterval(timer);
      unsubscribe();
    });
  });
}
