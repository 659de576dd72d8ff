/**
 * Registers every route of the table with its handler: authenticates, checks the input, answers. A
 * route without a handler does not compile.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { apiBase, notYetRoutes, type OperationId, type Route, routeList } from '@sandlot/protocol';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { AppError, notImplemented } from '../app/app-error.js';
import { authenticate, authenticateLocalAdmin } from '../app/authenticate.js';
import type { AppContext, Caller } from '../app/context.js';
import type { Call, Handlers } from './handlers.js';
import type { PublicOrigin } from './public-origin.js';
import { makeInputReader } from './read-input.js';

/** What routes need beside the operations. */
export interface RouteParts {
  app: AppContext;
  origin: PublicOrigin;
  /** True for requests that came through the admin socket. */
  isLocalAdmin(request: IncomingMessage): boolean;
}

const defaultBodyLimitBytes = 1024 * 1024;

type AnyHandler = (call: Call<OperationId>) => unknown;

/** Registers all routes. */
export function registerRoutes(server: FastifyInstance, parts: RouteParts, handlers: Handlers): void {
  void server.register(async (streaming) => {
    // In this scope no body is read: the handler gets the bytes as they come.
    streaming.removeAllContentTypeParsers();
    streaming.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
    for (const [id, route] of routeList)
      if (route.streamBody) addRoute(streaming, parts, id, route, handlers[id] as unknown as AnyHandler);
  });
  for (const [id, route] of routeList)
    if (!route.streamBody) addRoute(server, parts, id, route, handlers[id] as unknown as AnyHandler);
  for (const { method, path, feature } of notYetRoutes)
    server.route({
      method,
      url: toFastifyPath(path),
      handler: async (request, reply) => {
        await callerOf(request, reply, parts);
        throw notImplemented(feature);
      },
    });
}

function addRoute(
  server: FastifyInstance,
  parts: RouteParts,
  id: OperationId,
  route: Route,
  handle: AnyHandler,
): void {
  const reader = makeInputReader(route);
  server.route({
    method: route.method,
    url: toFastifyPath(route.path),
    bodyLimit: route.streamBody ? Number.MAX_SAFE_INTEGER : (route.bodyLimitBytes ?? defaultBodyLimitBytes),
    config: { operation: id },
    // Before the body is read: a stranger's upload is not even looked at.
    onRequest: async (request, reply) => {
      request.caller = await callerOf(request, reply, parts);
      if (route.access === 'admin' && !request.caller.actor.isAdmin)
        throw new AppError(
          'FORBIDDEN',
          `${route.summary}: this needs an admin's key, or the admin socket on the server.`,
        );
    },
    handler: async (request, reply) => {
      const answer = await handle({
        caller: request.caller as Caller,
        params: request.params as Record<string, string>,
        query: reader.query(request.query) as never,
        body: reader.body(route.streamBody ? {} : request.body) as never,
        stream: request.raw,
        headers: request.headers,
        signal: (request.caller as Caller).signal,
      });
      reply.status(route.status ?? 200);
      if (!route.ndjson) return answer;
      return sendStream(reply, answer as IncomingMessage);
    },
  });
}

async function callerOf(
  request: FastifyRequest,
  reply: FastifyReply,
  { app, origin, isLocalAdmin }: RouteParts,
): Promise<Caller> {
  const local = isLocalAdmin(request.raw);
  // Before the first pause: a client that has gone by then has no address any more.
  const publicOrigin = origin.of(request.raw, local);
  const actor = local
    ? await authenticateLocalAdmin(app)
    : await authenticate(app, request.headers.authorization);
  const userAgent = request.headers['user-agent'] ?? '';
  return { actor, requestId: request.id, publicOrigin, userAgent, signal: signalOf(reply) };
}

/** Lines go out as they come in; a client that leaves ends the node's work. */
function sendStream(reply: FastifyReply, source: IncomingMessage): FastifyReply {
  reply.raw.once('close', () => source.destroy());
  return reply
    .header('content-type', 'application/x-ndjson')
    .header('cache-control', 'no-store')
    .send(source);
}

function signalOf(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  const raw: ServerResponse = reply.raw;
  raw.once('close', () => {
    if (!raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

/** `/sandbox/{id}/a:b` in fastify's form: parameters by a colon, a literal colon doubled. */
function toFastifyPath(path: string): string {
  return apiBase + path.replaceAll(':', '::').replaceAll(/\{(\w+)\}/g, ':$1');
}
