/**
 * The node agent's HTTP server: gateway requests go straight to the gateway, all else to the routes
 * of the node's API (protocol's `node-api.ts`).
 */
import http, { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { serverKeepsIdleMs } from '@sandlot/protocol';
import Fastify, { type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { failureOf } from './failures.js';
import { checkpointRoutes } from './routes/checkpoints.js';
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
  const server = http.createServer(
    { requestTimeout: 0, keepAliveTimeout: serverKeepsIdleMs },
    (request, response) => {
      if (parts.gateway.owns(request.url ?? '')) {
        response.once('close', () => logGateway(parts.log, request, response));
        void parts.gateway.handle(request, response);
      } else handleApi?.(request, response);
    },
  );
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
    const facts = {
      err: error,
      requestId: requestIdOf(request.raw),
      method: request.method,
      path: pathOf(request.raw),
    };
    if (status >= 500) parts.log.error({ ...facts, status }, 'node call failed');
    else parts.log.info({ ...facts, status }, 'node call refused');
    void reply.status(status).send(body);
  });
  app.addHook('onResponse', async (request, reply) => {
    // What is polled would bury the rest, and changes nothing.
    const isQuiet = request.method === 'GET' || /\/(read-file|acknowledge)$/.test(pathOf(request.raw));
    const level = isQuiet ? 'debug' : 'info';
    const { method, raw } = request;
    const ms = Math.round(reply.elapsedTime);
    parts.log[level](
      { requestId: requestIdOf(raw), method, path: pathOf(raw), status: reply.statusCode, ms },
      'node call',
    );
  });
  nodeRoutes(app, parts);
  sandboxRoutes(app, parts);
  checkpointRoutes(app, parts);
  reportRoutes(app, parts);
  imageRoutes(app, parts);
  void app.ready();
  return server;
}

/** Gateway requests are as many as users make: only those that failed on our side are worth a line. */
function logGateway(log: Logger, request: IncomingMessage, response: ServerResponse): void {
  const { statusCode: status, writableFinished } = response;
  const facts = { requestId: requestIdOf(request), method: request.method, path: pathOf(request), status };
  if (status >= 500) log.warn(facts, 'gateway request failed');
  else log.debug({ ...facts, whole: writableFinished }, 'gateway request');
}

/** Given by the control plane, which has given or shown it to the client; absent in calls of its own. */
function requestIdOf(request: IncomingMessage): string | undefined {
  return [request.headers['x-request-id']].flat()[0];
}

/** Without the query: it may hold what is nobody's business. */
function pathOf(request: IncomingMessage): string {
  return (request.url ?? '').split('?')[0] ?? '';
}
