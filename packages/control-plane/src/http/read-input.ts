/** Reads query and body of a request by the schemas of its route. Wrong fields are INVALID_REQUEST, all named at once. */
import {
  compileSchema,
  type Route,
  type SchemaCheck,
  type SchemaIssue,
  type TSchema,
} from '@sandlot/protocol';
import { invalidRequest } from '../app/app-error.js';

/** Checks of one route, compiled once. */
export interface InputReader {
  query(raw: unknown): unknown;
  body(raw: unknown): unknown;
}

/** Compiles the checks of a route. */
export function makeInputReader(route: Route): InputReader {
  const checkQuery = route.query && compileSchema(route.query);
  const checkBody = route.body && compileSchema(route.body);
  return {
    query: (raw) =>
      route.query === undefined
        ? {}
        : checked(checkQuery, coerceQuery(route.query, raw as Record<string, unknown>)),
    body: (raw) => (route.body === undefined ? undefined : checked(checkBody, withoutNulls(raw ?? {}))),
  };
}

function checked(check: SchemaCheck | undefined, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalidRequest([{ param: '', details: 'The body must be a JSON object.' }]);
  const issues: SchemaIssue[] = check?.(value) ?? [];
  if (issues.length > 0) throw invalidRequest(issues);
  return value;
}

/** `null` means absent, at the top level: clients of every generation leave nulls out, other people's may not. */
function withoutNulls(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, inner]) => inner !== null));
}

/** Query values are text: numbers, booleans and lists are made of them as the schema says. What cannot be made stays text. */
function coerceQuery(schema: TSchema, raw: Record<string, unknown>): Record<string, unknown> {
  const properties = schema['properties'] as Record<string, TSchema>;
  const result: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(properties)) {
    const value = raw[name];
    if (value === undefined || value === '') continue;
    result[name] = coerce(property, value);
  }
  return result;
}

function coerce(schema: TSchema, value: unknown): unknown {
  const type = schema['type'];
  if (type === 'array') return Array.isArray(value) ? value : [value];
  const text = Array.isArray(value) ? value.at(-1) : value;
  if ((type === 'integer' || type === 'number') && typeof text === 'string' && /^-?\d+(\.\d+)?$/.test(text))
    return Number(text);
  if (type === 'boolean' && (text === 'true' || text === 'True' || text === '1')) return true;
  if (type === 'boolean' && (text === 'false' || text === 'False' || text === '0')) return false;
  return text;
}
