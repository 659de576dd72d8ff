/** Failures of requests to a node, told apart by what the caller can do. */

/** Any failure of a request to a node. */
export class NodeCallError extends Error {
  override readonly name: string = 'NodeCallError';
}

/** No connection, or it broke, or no answer in time: whether the node acted is not known. */
export class NodeUnreachableError extends NodeCallError {
  override readonly name = 'NodeUnreachableError';
}

/** The node answered with an error status: it acted, and refused. */
export class NodeRefusedError extends NodeCallError {
  override readonly name = 'NodeRefusedError';

  constructor(
    message: string,
    readonly status: number,
    /** The node's own code, "" when it sent none. */
    readonly code: string,
  ) {
    super(message);
  }
}
