/** All nodes: one on a single machine, many later. Finds the node of a sandbox and the state of each for placement. */
import type { NodeInfo } from '@sandlot/protocol';
import type { NodeClient } from './node-client.js';
import { NodeUnreachableError } from './node-error.js';
import type { NodeLink } from './node-link.js';

/** The links to all nodes. */
export class Fleet {
  constructor(private readonly all: readonly NodeLink[]) {}

  /** Every link. */
  get links(): readonly NodeLink[] {
    return this.all;
  }

  /** The link to a node; undefined when it has not been reached since we started. */
  link(nodeId: string): NodeLink | undefined {
    return this.all.find((link) => link.info?.nodeId === nodeId);
  }

  /** Calls to a node, on behalf of a client's request or of nobody; throws {@link NodeUnreachableError} when it has not been reached yet. */
  client(nodeId: string, requestId?: string): NodeClient {
    const link = this.link(nodeId);
    if (link === undefined) throw new NodeUnreachableError(`node ${nodeId} has not been reached yet`);
    return link.client.onBehalfOf(requestId);
  }

  /** Calls to the node whose image store the API shows: the first. */
  imageNode(requestId?: string): NodeClient {
    const link = this.all[0];
    if (link === undefined) throw new NodeUnreachableError('no node is configured');
    return link.client.onBehalfOf(requestId);
  }

  /** What the nodes that have been reached say of themselves. */
  infos(): NodeInfo[] {
    return this.all.flatMap((link) => (link.info === undefined ? [] : [link.info]));
  }

  /** Closes every link. */
  async close(): Promise<void> {
    await Promise.all(this.all.map((link) => link.close()));
  }
}
