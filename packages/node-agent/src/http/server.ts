/**
 * The node agent's HTTP server: gateway requests go straight to the gateway, all else to the routes
 * of the node's API (protocol's `node-api.ts`).
 */
import http, { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import Fastify, { type FastifyInstance } from 'fastify';
import { failureOf } from './failures.js';
import { imageRoutes } from './routes/images.js';
import { nodeRoutes } from './routes/node.js';
import { reportRoutes } from './routes/reports.js';
import { sandboxRoutes } from './routes/sandboxes.js';
import type { ServerParts } from './server-parts.js';

/** A spec with environment and secrets. */
const bodyLimitBytes = 16 * 1024 * 1024;

/** A server that does not listen yet. */
export function createNodeServer(parts: ServerParts): Server {
  let handleApi: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;
  const server = http.createServer({ requestTimeout: 0, keepAliveTimeout: 60_000 }, (request, response) => {
    if (parts.gateway.owns(request.url ?? '')) void parts.gateway.handle(request, response);
    else handleApi?.(request, response);
  });
  // A stream of an exec may live for a day.
  server.timeout = 0;
  const app: FastifyInstance = Fastify({
    bodyLimit: bodyLimitBytes,
    logger: false,
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 1024 },
    serverFactory: (handler) => {
      handleApi = handler;
      return server;
    },
  });
  app.setErrorHandler((error, request, reply) => {
    const { status, body } = failureOf(error);
    if (status >= 500) parts.log.error({ err: error, url: request.url }, 'node call failed');
    void reply.status(status).send(body);
  });
  nodeRoutes(app, parts);
  sandboxRoutes(app, parts);
  reportRoutes(app, parts);
  imageRoutes(app, parts);
  void app.ready();
  return server;
}
