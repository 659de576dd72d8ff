/**
 * Makes the OpenAPI document from the routes table. `docs/openapi.json` is its output, checked in;
 * a test fails when they differ (`write-openapi.ts` renews it). Served at `/sandbox/openapi.json`.
 */
import * as account from './account.js';
import * as checkpoint from './checkpoint.js';
import { ErrorBody, errorTable } from './errors.js';
import * as image from './image.js';
import { apiBase, type Route, routeList } from './routes.js';
import * as sandbox from './sandbox.js';
import * as batch from './sandbox-batch.js';
import type { TSchema } from './schema.js';
import * as system from './system.js';
import { View } from './view.js';

/** A JSON value of the document. */
export type OpenApiNode = { [key: string]: unknown };

/** Errors that every route with a key can answer. */
const everyRoute = ['INVALID_REQUEST', 'UNAUTHENTICATED', 'INTERNAL', 'SHUTTING_DOWN'] as const;

/** The document as a value; the same for the same source. */
export function buildOpenApi(version: string): OpenApiNode {
  const names = componentNames();
  const paths: Record<string, Record<string, OpenApiNode>> = {};
  for (const [operationId, route] of routeList) {
    const path = `${apiBase}${route.path}`;
    paths[path] ??= {};
    paths[path][route.method.toLowerCase()] = operation(operationId, route, names);
  }
  const schemas: OpenApiNode = {};
  for (const [schema, name] of [...names].sort((a, b) => (a[1] < b[1] ? -1 : 1)))
    schemas[name] = inline(schema, names);
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sandlot API',
      version,
      description: 'Linux microVM sandboxes. Exec and files are under the gateway URL that `…/auth` answers.',
    },
    paths,
    components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } }, schemas },
  };
}

/** The document as the text of the checked-in file. */
export function openApiText(version: string): string {
  return `${JSON.stringify(buildOpenApi(version), null, 1)}\n`;
}

/** Every exported schema, by identity, under its export's name. */
function componentNames(): Map<TSchema, string> {
  const names = new Map<TSchema, string>();
  for (const module of [sandbox, batch, checkpoint, account, image, system, { ErrorBody, View }])
    for (const [name, value] of Object.entries(module))
      if (typeof value === 'object' && value !== null && 'type' in value) names.set(value as TSchema, name);
  return names;
}

function operation(operationId: string, route: Route, names: Map<TSchema, string>): OpenApiNode {
  const parameters = [...pathParameters(route.path), ...queryParameters(route.query, names)];
  const answerType = route.ndjson ? 'application/x-ndjson' : 'application/json';
  return {
    operationId,
    summary: route.summary,
    ...(route.addition ? { 'x-addition': true } : {}),
    ...(route.access === 'open' ? {} : { security: [{ key: [] }], 'x-access': route.access }),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...requestBody(route, names),
    responses: {
      [String(route.status ?? 200)]: {
        description: 'Success',
        content: { [answerType]: { schema: refer(route.answer, names) } },
      },
      ...errorAnswers(route, names),
    },
  };
}

function requestBody(route: Route, names: Map<TSchema, string>): OpenApiNode {
  if (route.streamBody)
    return {
      requestBody: {
        required: true,
        content: { 'application/octet-stream': { schema: { type: 'string' } } },
      },
    };
  if (route.body === undefined) return {};
  return {
    requestBody: {
      required: route.bodyOptional !== true,
      content: { 'application/json': { schema: refer(route.body, names) } },
    },
  };
}

function errorAnswers(route: Route, names: Map<TSchema, string>): OpenApiNode {
  const byStatus = new Map<number, string[]>();
  for (const code of [...everyRoute, ...route.errors]) {
    const status = errorTable[code].status;
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const answers: OpenApiNode = {};
  for (const [status, codes] of [...byStatus].sort((a, b) => a[0] - b[0]))
    answers[String(status)] = {
      description: codes.join(', '),
      content: { 'application/json': { schema: refer(ErrorBody, names) } },
    };
  return answers;
}

function pathParameters(path: string): OpenApiNode[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map((match) => ({
    name: match[1],
    in: 'path',
    required: true,
    schema: { type: 'string' },
  }));
}

function queryParameters(query: TSchema | undefined, names: Map<TSchema, string>): OpenApiNode[] {
  if (query === undefined) return [];
  const required = (query['required'] as string[] | undefined) ?? [];
  return Object.entries(query['properties'] as Record<string, TSchema>).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema: refer(schema, names),
  }));
}

/** A reference to a named schema, or the schema itself with references inside. */
function refer(schema: TSchema, names: Map<TSchema, string>): OpenApiNode {
  const name = names.get(schema);
  return name === undefined ? inline(schema, names) : { $ref: `#/components/schemas/${name}` };
}

function inline(schema: TSchema, names: Map<TSchema, string>): OpenApiNode {
  const walk = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(walk);
    if (typeof value !== 'object' || value === null) return value;
    if (names.has(value as TSchema)) return refer(value as TSchema, names);
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, walk(inner)]));
  };
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, walk(value)]));
}
