/** The type of the handlers behind the routes table: one for each operation, with inputs typed by the route's schemas. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { OperationId, routes, Static, TSchema } from '@sandlot/protocol';
import type { Caller } from '../app/context.js';

type Input<Id extends OperationId, Part extends 'query' | 'body'> =
  (typeof routes)[Id] extends Record<Part, infer Schema extends TSchema> ? Static<Schema> : undefined;

type Answer<Id extends OperationId> = (typeof routes)[Id] extends { ndjson: true }
  ? IncomingMessage
  : Static<(typeof routes)[Id]['answer']>;

/** One request of an operation. */
export interface Call<Id extends OperationId> {
  caller: Caller;
  params: Record<string, string>;
  query: Input<Id, 'query'>;
  body: Input<Id, 'body'>;
  /** Bytes of the body, where the route streams them. */
  stream: Readable;
  headers: IncomingMessage['headers'];
  /** Aborted when the client goes away. */
  signal: AbortSignal;
}

/** Handlers of some operations. */
export type Handlers<Ids extends OperationId = OperationId> = {
  [Id in Ids]: (call: Call<Id>) => Promise<Answer<Id>> | Answer<Id>;
};
