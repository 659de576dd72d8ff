/**
 * The queue of sandboxes that wait for room: strictly first come, first served, so that a large
 * one is never starved by small ones behind it. Pure; called by `app/dispatch.ts`.
 */
import type { Shape } from '../domain/record.js';
import { type NodeSnapshot, place } from './place.js';

/** One that waits. */
export interface Waiting {
  id: string;
  shape: Shape;
  /** What it begins with is on this node, and nowhere else. */
  beginsWith?: { nodeId: string };
}

/** The nodes on which it may be placed. Pure. */
export function nodesFor<T extends { nodeId: string }>(
  { beginsWith }: Pick<Waiting, 'beginsWith'>,
  nodes: readonly T[],
): readonly T[] {
  return beginsWith ? nodes.filter(({ nodeId }) => nodeId === beginsWith.nodeId) : nodes;
}

/** What to do with the queue now. */
export interface QueuePlan {
  /** Book these, in this order. */
  placed: { id: string; nodeId: string; why: string }[];
  /** These can never fit any more: the nodes offer less than when they came. */
  never: { id: string; why: string }[];
}

/** Places from the head of the queue until one does not fit. */
export function planQueue(waiting: readonly Waiting[], nodes: readonly NodeSnapshot[]): QueuePlan {
  const plan: QueuePlan = { placed: [], never: [] };
  const room = nodes.map((node) => ({ ...node, reserved: { ...node.reserved } }));
  for (const one of waiting) {
    const { id, shape } = one;
    const placement = place(shape, nodesFor(one, room));
    if (placement.kind === 'wait') break;
    if (placement.kind === 'never') {
      plan.never.push({ id, why: placement.why });
      continue;
    }
    plan.placed.push({ id, nodeId: placement.nodeId, why: placement.why });
    const node = room.find((candidate) => candidate.nodeId === placement.nodeId);
    if (node === undefined) throw new Error(`placed on ${placement.nodeId}, which was not offered; a bug`);
    node.reserved.vcpus += shape.vcpus;
    node.reserved.memoryMiB += shape.memoryMiB;
    node.reserved.diskGiB += shape.diskGiB;
  }
  return plan;
}
