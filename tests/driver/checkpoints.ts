/** How tests make checkpoints of sandboxes of a test node and use them, in place of the control plane. */
import { randomBytes } from 'node:crypto';
import type { NodeCheckpoint, SandboxReport } from '@sandlot/protocol';
import type { TestNode, TestSpec } from './test-node.js';
import type { TestSandbox } from './test-sandbox.js';

/** Saves a sandbox; the checkpoint is not durable yet. */
export async function saveCheckpoint(
  node: TestNode,
  { id }: TestSandbox,
  memory: boolean,
): Promise<NodeCheckpoint> {
  const report = await node.report(id);
  const checkpointId = `c${randomBytes(6).toString('hex')}`;
  const order = { generation: report?.generation, checkpointId, memory };
  return node.ask('POST', `/v1/sandboxes/${id}/checkpoints`, order);
}

/** The same, and waits until it is durable. */
export async function makeCheckpoint(
  node: TestNode,
  sandbox: TestSandbox,
  memory: boolean,
): Promise<NodeCheckpoint> {
  const { id } = await saveCheckpoint(node, sandbox, memory);
  return node.ask('POST', `/v1/checkpoints/${id}/settle`);
}

/** Deletes one. */
export function removeCheckpoint(node: TestNode, id: string): Promise<unknown> {
  return node.ask('DELETE', `/v1/checkpoints/${id}`);
}

/** A running sandbox that begins with a checkpoint. */
export function createFrom(
  node: TestNode,
  id: string,
  memory: boolean,
  spec: TestSpec = {},
): Promise<TestSandbox> {
  return node.create({ ...spec, checkpoint: { id, memory } });
}

/** Begins to put a sandbox back to a checkpoint, with the next generation. */
export async function rollBack(
  node: TestNode,
  { id }: TestSandbox,
  checkpointId: string,
  memory: boolean,
): Promise<SandboxReport> {
  const report = await node.report(id);
  return node.ask('POST', `/v1/sandboxes/${id}/resume`, {
    generation: (report?.generation ?? 0) + 1,
    checkpoint: { id: checkpointId, memory },
  });
}
