/** A request that cannot be met because of what this node already knows of the sandbox. Becomes a 409 of the node's API. */
export class SandboxConflictError extends Error {
  override name = 'SandboxConflictError';
}
