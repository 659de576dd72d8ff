/**
 * The API as a fastify instance without a listener of its own: `edge/` hands it the requests that are
 * not the gateway's. Adds request ids, the log line of each request, `/healthz` and `/metrics`.
 */
import type { IncomingMessage, RequestListener } from 'node:http';
import { createServer } from 'node:http';
import { apiBase, buildOpenApi, productVersion } from '@sandlot/protocol';
import Fastify, { type FastifyInstance, type FastifyRequest, LogController } from 'fastify';
import type { Logger } from 'pino';
import type { AppContext, Caller } from '../app/context.js';
import { getStatus } from '../app/system-status.js';
import { requestIdHeader, requestIdOf } from '../request-id.js';
import { handleErrors } from './error-answer.js';
import type { Handlers } from './handlers.js';
import { Metrics } from './metrics.js';
import { type OriginOptions, PublicOrigin } from './public-origin.js';
import { registerRoutes } from './register-routes.js';
import { accountHandlers } from './routes/accounts.js';
import { checkpointHandlers } from './routes/checkpoints.js';
import { imageHandlers } from './routes/images.js';
import { sandboxHandlers } from './routes/sandboxes.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Who asks; set before the body is read. */
    caller: Caller | undefined;
  }
  interface FastifyContextConfig {
    operation?: string;
  }
}

/** What the API needs. */
export interface ApiServerOptions extends OriginOptions {
  app: AppContext;
  log: Logger;
  /** Our own origin, once we listen. */
  listenOrigin(): string;
  isLocalAdmin(request: IncomingMessage): boolean;
  isClosing(): boolean;
  /** Shown by `status`. */
  dataFolder: string;
}

/** The API, ready to take requests. */
export interface ApiServer {
  handle: RequestListener;
  metrics: Metrics;
  close(): Promise<void>;
}

/** Longest path parameter: an image reference, url-encoded. */
const maxParamLength = 2048;

/** Builds the API. */
export async function buildApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const { app, log } = options;
  let handle: RequestListener | undefined;
  const server = Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' }),
    genReqId: (request: { headers: IncomingMessage['headers'] }) => requestIdOf(request.headers),
    routerOptions: { maxParamLength, querystringParser: parseQuery },
    // Fastify insists on a server; this one never listens.
    serverFactory: (handler) => {
      handle = handler as RequestListener;
      return createServer();
    },
  }) as unknown as FastifyInstance;
  const metrics = new Metrics(app);
  readJson(server);
  handleErrors(server, options.isClosing);
  observe(server, metrics);
  const origin = new PublicOrigin(options, options.listenOrigin);
  const handlers: Handlers = {
    ...sandboxHandlers(app),
    ...checkpointHandlers(app),
    ...imageHandlers(app),
    ...accountHandlers(app),
    getStatus: ({ caller }) => getStatus(app, caller, options.dataFolder),
  };
  registerRoutes(server, { app, origin, isLocalAdmin: options.isLocalAdmin }, handlers);
  addPlainRoutes(server, metrics, app);
  await server.ready();
  if (handle === undefined) throw new Error('fastify made no request handler; a bug');
  return {
    handle,
    metrics,
    close: async () => {
      metrics.close();
      await server.close();
    },
  };
}

/** Repeated names become lists, and nothing can be named `__proto__`. */
function parseQuery(text: string): Record<string, string | string[]> {
  const params = new URLSearchParams(text);
  const entries = [...new Set(params.keys())].map((name): [string, string | string[]] => {
    const values = params.getAll(name);
    return [name, values.length > 1 ? values : (values[0] ?? '')];
  });
  return Object.fromEntries(entries);
}

/** JSON, where an empty body is none: Prime's clients send the content type with every request. */
function readJson(server: FastifyInstance): void {
  const parse = server.getDefaultJsonParser('error', 'error');
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body.length === 0) done(null, undefined);
    else parse(request, body as string, (error, value) => done(error && invalidJson(error), value));
  });
}

/** Fastify names some of its parser's errors and not others. */
function invalidJson(cause: Error): Error {
  return Object.assign(new Error('The body is not valid JSON.', { cause }), {
    code: 'FST_ERR_CTP_INVALID_JSON_BODY',
  });
}

function observe(server: FastifyInstance, metrics: Metrics): void {
  server.decorateRequest('caller', undefined);
  server.addHook('onSend', async (request, reply) => {
    reply.header(requestIdHeader, request.id);
  });
  server.addHook('onResponse', async (request, reply) => {
    const operation = request.routeOptions.config.operation ?? 'other';
    metrics.observe(operation, reply.statusCode, reply.elapsedTime / 1000);
    const fields = logFields(request, operation, reply.statusCode, reply.elapsedTime);
    // Clients poll: a line for each read would bury the rest, and fill the disk.
    if (isRead(request, operation) && reply.statusCode < 400) request.log.debug(fields, 'request');
    else request.log.info(fields, 'request');
  });
}

function isRead(request: FastifyRequest, operation: string): boolean {
  return request.method === 'GET' || operation.startsWith('batchGet');
}

/** Never the query, the headers or the body: they may hold what is nobody's business. */
function logFields(request: FastifyRequest, operation: string, status: number, ms: number) {
  const { sandbox_id: sandboxId } = (request.params ?? {}) as { sandbox_id?: string };
  return {
    method: request.method,
    path: request.url.split('?')[0],
    operation,
    status,
    ms: Math.round(ms * 10) / 10,
    sandboxId,
    userId: request.caller?.actor.userId,
  };
}

function addPlainRoutes(server: FastifyInstance, metrics: Metrics, app: AppContext): void {
  const document = buildOpenApi(productVersion);
  server.get(`${apiBase}/sandbox/openapi.json`, () => document);
  server.get('/healthz', async () => {
    // Answers only if the database does.
    await app.store.db.selectFrom('users').select('id').limit(1).execute();
    return { status: 'ok', version: productVersion };
  });
  server.get('/metrics', async (_request, reply) => {
    const { type, text } = await metrics.text();
    return reply.header('content-type', type).send(text);
  });
}
