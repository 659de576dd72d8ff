/**
 * Small building blocks of the wire schemas: what every schema file of this package begins with.
 * Schemas are TypeBox values, which are JSON Schema; types are derived from them.
 */
import { Kind, type Static, type TSchema, Type, TypeRegistry } from '@sinclair/typebox';
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler';

export type { Static, TSchema } from '@sinclair/typebox';

/** The value or `null`; the key itself is always there. */
export function Nullable<T extends TSchema>(schema: T) {
  return Type.Union([schema, Type.Null()]);
}

const oneOfKind = 'SandlotOneOf';
// TypeBox compiles only kinds that it knows; a union of literals would be `anyOf` in the document.
TypeRegistry.Set<{ enum: readonly unknown[] }>(oneOfKind, (schema, value) => schema.enum.includes(value));

/** One of a few strings: `enum` in the document. */
export function OneOf<T extends string>(...values: T[]) {
  return Type.Unsafe<T>({ [Kind]: oneOfKind, type: 'string', enum: values });
}

/** A moment: ISO 8601, UTC, milliseconds. */
export const Timestamp = Type.String({ description: 'ISO 8601, UTC' });

/** Id of a sandbox, user or key: 20 lower-case base32 characters; of a team: `c` and 24. Random, globally unique. */
export const Id = Type.String({ minLength: 1, maxLength: 64 });

/** Form of the ids that this server gives out. */
export const idPattern = /^[a-z][a-z2-7]{19}$/;

/** One thing that is wrong with a value: which field, and what about it. */
export interface SchemaIssue {
  /** Dotted path of the field, `labels.0`; "" for the value as a whole. */
  param: string;
  details: string;
}

/** Checks a value against a schema; an empty list means that it fits. */
export type SchemaCheck = (value: unknown) => SchemaIssue[];

/** Largest number of issues that one check reports. */
const maxIssues = 20;

/** Compiles a schema to a check. Do it once for each schema: compiling costs about a millisecond. */
export function compileSchema(schema: TSchema): SchemaCheck {
  const check: TypeCheck<TSchema> = TypeCompiler.Compile(schema);
  return (value) => {
    if (check.Check(value)) return [];
    const issues: SchemaIssue[] = [];
    const seen = new Set<string>();
    for (const error of check.Errors(value)) {
      const param = error.path.replace(/^\//, '').replaceAll('/', '.');
      if (seen.has(param)) continue;
      seen.add(param);
      issues.push({ param, details: describe(error.message, error.schema, error.value) });
      if (issues.length >= maxIssues) break;
    }
    return issues;
  };
}

/** TypeBox says "Expected …"; enums, limits and the words for a pattern say more. */
function describe(message: string, schema: TSchema, value: unknown): string {
  if (Array.isArray(schema['enum'])) return `Must be one of ${(schema['enum'] as string[]).join(', ')}.`;
  const { minimum, maximum, pattern, description } = schema;
  if (typeof value === 'number' && value < minimum) return `Must be at least ${minimum}.`;
  if (typeof value === 'number' && value > maximum) return `Must be at most ${maximum}.`;
  if (typeof value === 'string' && pattern && description) return `Must be: ${description}`;
  return `${message}.`;
}

/** Value type of a schema, for callers that do not import TypeBox. */
export type ValueOf<T extends TSchema> = Static<T>;
