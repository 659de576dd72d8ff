/** Turns failures of requests to a node into errors for the caller. Used where an operation needs the node's answer. */
import type { ErrorCode } from '@sandlot/protocol';
import { NodeRefusedError, NodeUnreachableError } from '../nodes/node-error.js';
import { AppError } from './app-error.js';

const codes: Readonly<Record<number, ErrorCode>> = {
  400: 'INVALID_REQUEST',
  404: 'NOT_FOUND',
  409: 'CONFLICT',
  422: 'INVALID_REQUEST',
  507: 'STORAGE_FULL',
};

/** Awaits a call to a node; its failure becomes an {@link AppError}. `what` completes "Could not …". */
export async function fromNode<T>(what: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (cause) {
    throw nodeFailure(what, cause);
  }
}

/** The error for a failed call to a node; other errors come back as they are. */
export function nodeFailure(what: string, cause: unknown): unknown {
  if (cause instanceof NodeUnreachableError)
    return new AppError(
      'NODE_UNAVAILABLE',
      `Could not ${what}: the node agent cannot be reached. Try again in a moment; \`sandlot status\` shows the node.`,
      { cause },
    );
  if (cause instanceof NodeRefusedError)
    return new AppError(codes[cause.status] ?? 'NODE_ERROR', `Could not ${what}: ${cause.message}`, {
      cause,
    });
  return cause;
}
